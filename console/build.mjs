// Builds the console into threadfold/console, with the hash of what it was built from: a test compares it
// with the sources. `npm ci && npm run build` here, then commit both. An argument is another folder to build into.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "threadfold", "console");
const SOURCES = ["../clients/typescript/dist/index.js", "src", "build.mjs", "index.html", "package.json", "package-lock.json", "tsconfig.json"];

function files(path) {
  const found = readdirSync(path, { withFileTypes: true });
  return found.flatMap((one) => (one.isDirectory() ? files(join(path, one.name)) : [join(path, one.name)]));
}

// The same in tests/unit/repository/test_console.py: path, a zero byte, content, a zero byte, by path.
function sourcesHash() {
  const hash = createHash("sha256");
  const all = SOURCES.flatMap((name) => (name === "src" ? files(join(here, name)) : [join(here, name)]));
  const named = all.map((path) => [relative(here, path).split(sep).join("/"), path]);
  for (const [name, path] of named.sort((a, b) => (a[0] < b[0] ? -1 : 1))) {
    hash.update(name).update("\0").update(readFileSync(path)).update("\0");
  }
  return hash.digest("hex");
}

await build({
  absWorkingDir: here,
  entryPoints: [
    { in: "src/main.tsx", out: "console" },
    { in: "src/style.css", out: "console" },
  ],
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});

const hash = sourcesHash();
const page = readFileSync(join(here, "index.html"), "utf8").replaceAll("VERSION", hash.slice(0, 16));
writeFileSync(join(out, "index.html"), page);
writeFileSync(join(out, "icon.svg"), readFileSync(join(here, "src", "icon.svg")));
const licence = readFileSync(join(here, "node_modules", "preact", "LICENSE"), "utf8");
writeFileSync(join(out, "licences.txt"), `console.js holds Preact (preactjs.com):\n\n${licence}`);
writeFileSync(join(out, "build.json"), `${JSON.stringify({ sources: hash })}\n`);
