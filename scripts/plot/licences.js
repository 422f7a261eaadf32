// Prints the licences of the packages in a bundle, from the metafile of esbuild: each text once, with its packages.
const fs = require("fs"), texts = new Map();
const [{ inputs }] = Object.values(JSON.parse(fs.readFileSync("meta.json")).outputs);
for (const [file, { bytesInOutput }] of Object.entries(inputs)) {
  const found = file.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (!found || !bytesInOutput) continue;
  const { name, version } = JSON.parse(fs.readFileSync(`node_modules/${found[1]}/package.json`));
  const text = fs.readFileSync(`node_modules/${found[1]}/LICENSE`, "utf8").trim();
  texts.set(text, (texts.get(text) ?? new Set()).add(`${name} ${version}`));
}
console.log("/*! Bundled by scripts/plot/build of ci-perf.\n");
for (const [text, packages] of texts) console.log(`${[...packages].sort().join(", ")}\n\n${text}\n`);
console.log("*/");
