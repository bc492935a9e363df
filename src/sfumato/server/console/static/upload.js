// A table or a zip of tables goes up as it is, with its name; a folder, its zip or its tar in parts. The page that comes next
// asks for the card, or for the version that the rows are appended to.
import { Refused, archive, folder, inParts, isFolderZip } from "./folder-upload.js";

const MB = 1e6;

export function uploading(form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void send(form, form.querySelector("input[type=file]").files);
  });
}

async function send(form, files) {
  const said = form.querySelector("[role=status]");
  const bar = form.querySelector("progress");
  const button = form.querySelector("button");
  const tell = (what, done, size) => {
    said.textContent = `${what}: ${Math.round(done / MB)} of ${Math.round(size / MB)} MB …`;
    bar.hidden = false;
    bar.value = size ? done / size : 0;
  };
  button.disabled = true;
  try {
    const stream = form.dataset.folder === undefined ? await packed(files[0]) : folder(files);
    const upload = await (stream ? inParts(stream, form.dataset.csrf, tell) : whole(form, files[0], said));
    return location.assign(`${form.dataset.next ?? form.dataset.to}/${upload}`);
  } catch (problem) {
    said.textContent = problem instanceof Refused ? problem.message
      : "Not everything was sent. Check that the service is running. Then choose the same again: a folder, zip or tar goes on where it stopped.";
  }
  bar.hidden = true;
  button.disabled = false;
}

async function packed(file) {
  const stream = archive(file);
  return stream?.kind === "zip" && !(await isFolderZip(file)) ? undefined : stream;
}

async function whole(form, file, said) {
  said.textContent = `Sending ${file.name} …`;
  const reply = await fetch(`${form.dataset.to}?name=${encodeURIComponent(file.name)}`, {
    method: "PUT",
    headers: { "X-Csrf": form.dataset.csrf, "Content-Type": "application/octet-stream" },
    body: file,
  });
  const answer = await reply.json();
  if (answer.refused) throw new Refused(answer.refused);
  return answer.upload;
}
