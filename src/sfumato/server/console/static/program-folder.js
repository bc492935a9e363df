// The files of a program's folder are read into the form's fields: the main one, and its modules.
import { nameInto } from "./program.js";

const FIRST = ["main", "run", "__main__"];

export function readingFolder(input) {
  const choice = document.getElementById("main-choice");
  let texts = new Map();
  input.addEventListener("change", async () => {
    const said = document.getElementById("read");
    try {
      texts = await read([...input.files]);
    } catch (problem) {
      said.textContent = problem.message;
      return;
    }
    const paths = [...texts.keys()];
    choice.replaceChildren(...paths.map((path) => new Option(path, path)));
    choice.value = mainOf(paths);
    choice.parentElement.hidden = texts.size < 2;
    said.textContent = texts.size ? `Read ${texts.size} files. Nothing is sent yet.` : "The folder has no file.";
    fill(texts, choice.value);
    if (texts.size) nameInto(input, input.files[0].webkitRelativePath.split("/")[0]);
  });
  choice.addEventListener("change", () => fill(texts, choice.value));
}

async function read(files) {
  const most = Number(document.getElementById("source").maxLength);
  const found = files
    .map((file) => [file.webkitRelativePath.split("/").slice(1), file])
    .filter(([parts]) => !parts.some((part) => part.startsWith(".") || part === "__pycache__"))
    .map(([parts, file]) => [parts.join("/"), file]);
  if (found.reduce((sum, [, file]) => sum + file.size, 0) > most)
    throw new Error(`The folder is larger than ${most} letters, which is the most for a program.`);
  const texts = new Map();
  for (const [path, file] of found.sort(([a], [b]) => (a < b ? -1 : 1))) {
    try {
      texts.set(path, new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()));
    } catch {
      throw new Error(`The file ${path} is not a text. A program's folder has files of text alone.`);
    }
  }
  return texts;
}

// The file at the top that is called main or run, or the first there.
function mainOf(paths) {
  const top = paths.filter((path) => !path.includes("/"));
  const named = FIRST.map((name) => top.filter((path) => path.split(".")[0] === name)).find((found) => found.length === 1);
  return (named || top)[0] || paths[0] || "";
}

function fill(texts, main) {
  const rows = document.getElementById("modules");
  document.getElementById("source").value = texts.get(main) || "";
  document.getElementById("main-path").value = texts.size > 1 ? main : "";
  document.getElementById("files").open = texts.size > 1;
  const others = [...texts].filter(([path]) => path !== main);
  rows.replaceChildren(...others.map(([path, text], place) => {
    const row = document.getElementById("module").content.cloneNode(true);
    for (const label of row.querySelectorAll("label")) label.firstChild.data = label.firstChild.data.replace("0", place + 1);
    row.querySelector("input").value = path;
    row.querySelector("textarea").value = text;
    return row;
  }));
}
