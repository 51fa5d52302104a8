// Makes dist/ from src/: one minified module for browsers and Node, and the declarations of its
// types.
// A folder as argument takes the place of dist/: a test compares the two.

import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = process.argv[2] ?? "dist";
const compiler = createRequire(import.meta.url).resolve("typescript/bin/tsc");

process.chdir(root);
rmSync(folder, { recursive: true, force: true });
execFileSync(process.execPath, [compiler, "--outDir", folder], { stdio: "inherit" });
await build({
  entryPoints: ["src/index.ts"],
  outfile: `${folder}/index.js`,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  lineLimit: 240, // Node prints the whole line of an error that nobody caught
});
