// A folder, a zip or a tar goes up in parts, each named by its SHA-256. The service says which parts
// it lacks, so that choosing the same thing again goes on where it stopped.
const PART_BYTES = 8 * 1024 * 1024;
const MAX_LIST = 64 * 1024 * 1024;
const PAUSES_MS = [500, 1000, 2000, 5000, 10000];
const ARCHIVES = { ".zip": "zip", ".tar": "tar", ".tar.gz": "tar.gz", ".tgz": "tar.gz" };
const text = new TextEncoder();

// The stream of an archive is the file itself; of any other file there is none.
export function archive(file) {
  const lower = file.name.toLowerCase();
  const end = Object.keys(ARCHIVES).find((suffix) => lower.endsWith(suffix));
  return end && { name: file.name, kind: ARCHIVES[end], blob: file };
}

// True if a zip file has a table called participants.tsv at its top or in a folder there: then it is a
// BIDS folder, and else a file of tables. The list of a zip file is at its end.
export async function isFolderZip(file) {
  const end = new DataView(await file.slice(-65557).arrayBuffer());
  let at = end.byteLength - 22;
  while (at >= 0 && end.getUint32(at, true) !== 0x06054b50) at--;
  const size = at < 0 ? 0xffffffff : end.getUint32(at + 12, true);
  const begin = file.size - end.byteLength + at - size;
  if (size > MAX_LIST || begin < 0) return true;
  const list = new DataView(await file.slice(begin, begin + size).arrayBuffer());
  for (let one = 0; one + 46 <= size && list.getUint32(one, true) === 0x02014b50;) {
    const [name, more, comment] = [28, 30, 32].map((place) => list.getUint16(one + place, true));
    if (one + 46 + name > size) return true;
    const path = new TextDecoder().decode(new Uint8Array(list.buffer, one + 46, name)).replaceAll("\\", "/");
    if (/^(\.\/)?([^./][^/]*\/)?participants\.tsv$/.test(path) && !path.startsWith("__MACOSX/")) return true;
    one += 46 + name + more + comment;
  }
  return false;
}

// The stream of a folder: for each file, the lengths of its path and of itself, its path, its bytes.
export function folder(files) {
  const name = files[0].webkitRelativePath.split("/")[0];
  const found = [...files]
    .map((file) => [file.webkitRelativePath.slice(name.length + 1), file])
    .filter(([path]) => isPublished(path))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return { name, kind: "folder", blob: new Blob(found.flatMap(([path, file]) => [header(path, file.size), file])) };
}

// What a data card can list: files at the top, phenotype tables, and the people's own. Nothing hidden.
function isPublished(path) {
  const names = path.split("/");
  if (names.some((one) => one.startsWith("."))) return false;
  return names.length === 1 || names[0] === "phenotype" || names[0].startsWith("sub-");
}

function header(path, size) {
  const named = text.encode(path);
  const head = new DataView(new ArrayBuffer(10));
  head.setUint16(0, named.length, true);
  head.setBigUint64(2, BigInt(size), true);
  return new Blob([head, named]);
}

// Send what is missing, and return the id of the upload; `tell` is told what is done and how far.
export async function inParts({ name, kind, blob }, csrf, tell) {
  const count = Math.ceil(blob.size / PART_BYTES);
  const part = (number) => blob.slice(number * PART_BYTES, (number + 1) * PART_BYTES);
  const parts = [];
  for (let number = 0; number < count; number++) {
    tell("Reading", number * PART_BYTES, blob.size);
    const hash = await crypto.subtle.digest("SHA-256", await part(number).arrayBuffer());
    parts.push([...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join(""));
  }
  let state = await call("POST", "/folders", csrf, JSON.stringify({ name, kind, bytes: blob.size, parts }));
  const { upload, missing } = state;
  for (const [done, number] of missing.entries()) {
    tell("Sending", (count - missing.length + done) * PART_BYTES, blob.size);
    await call("PUT", `/uploads?name=${parts[number]}&folder=${upload}`, csrf, part(number));
  }
  tell("Unpacking", blob.size, blob.size);
  while (state.state !== "ready") {
    state = await call("POST", `/folders/${upload}`, csrf, "{}");
    if (state.state === "uploading") throw new Error("a part is missing");
    if (state.state === "unpacking") await pause(PAUSES_MS[0]);
  }
  return upload;
}

// Call the service, again after a pause while it is busy or does not answer.
async function call(method, path, csrf, body) {
  for (let tries = 0; ; tries++) {
    try {
      const headers = { "X-Csrf": csrf, "Content-Type": "application/octet-stream" };
      const reply = await fetch(path, { method, headers, body });
      const answer = await reply.json();
      if (!answer.refused) return answer;
      if (![429, 503].includes(reply.status) || tries === PAUSES_MS.length) throw new Refused(answer.refused);
    } catch (problem) {
      if (problem instanceof Refused || tries === PAUSES_MS.length) throw problem;
    }
    await pause(PAUSES_MS[tries]);
  }
}

export class Refused extends Error {
  constructor({ cause, next }) {
    super(`${cause} ${next}`);
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
