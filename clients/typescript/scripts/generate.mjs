// Writes types/openapi.d.ts from the OpenAPI document on stdin (`threadfold schemas openapi` prints
// it).
// With --print it prints the types instead: a test compares them.

import { writeFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import openapiTS, { astToString } from "openapi-typescript";

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const HEAD = "// Made from the OpenAPI document by `make typescript`. Do not edit.\n\n";

const document = JSON.parse(await text(process.stdin));
for (const path of Object.values(document.paths)) {
  for (const method of METHODS.filter((name) => path[name])) {
    const operation = path[method];
    delete operation.operationId; // types stand at their path, and not a second time under a name
    operation.responses = Object.fromEntries(
      Object.entries(operation.responses).filter(([status]) => status < "300"),
    );
    withoutExamples(operation);
  }
}
for (const schema of Object.values(document.components.schemas)) asTypes(schema);

const options = { defaultNonNullable: false, emptyObjectsUnknown: true };
const types = astToString(await openapiTS(document, options))
  .replace(/^ +\w+\?: never;\n/gm, "")
  .replace(/^ +parameters: \{\n +\};\n/gm, "")
  .replace(/^ +\/\*\* @(enum \{unknown\}|constant) \*\/\n/gm, "")
  .replace(/^ +\* @(enum \{unknown\}|constant)\n/gm, "")
  .replace(/^ +headers: \{\n +\[name: string\]: unknown;\n +\};\n/gm, "");
if (process.argv.includes("--print")) process.stdout.write(HEAD + types);
else writeFileSync(new URL("../types/openapi.d.ts", import.meta.url), HEAD + types);

// Conditions between fields are checked by the service; a type of TypeScript cannot say them.
function asTypes(schema) {
  if (schema.properties && schema.anyOf) delete schema.anyOf;
  if (schema.allOf?.every((part) => part.if)) {
    // One of several kinds, named by a field: a union of the kinds.
    schema.oneOf = schema.allOf.map((part) => part.then);
    const kind = document.components.schemas[schema.oneOf[0].$ref.split("/").at(-1)];
    for (const name of Object.keys(kind.properties)) delete schema.properties[name];
    delete schema.allOf;
    delete schema.required;
  }
}

function withoutExamples(node) {
  if (typeof node !== "object" || node === null) return;
  delete node.example;
  delete node.examples;
  Object.values(node).forEach(withoutExamples);
}
