// What a page can do better with script; without it, everything works all the same.
import { completing } from "./complete.js";
import { exhibiting } from "./exhibit.js";
import { following } from "./job.js";
import { pricing } from "./price.js";
import { busy, checklist, reading } from "./program.js";
import { readingFolder } from "./program-folder.js";
import { uploading } from "./upload.js";

for (const element of document.querySelectorAll(".scripted")) element.hidden = false;
for (const element of document.querySelectorAll("[data-unscripted]")) element.hidden = true;

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  });
}

for (const button of document.querySelectorAll("[data-print]"))
  button.addEventListener("click", () => print());

const form = document.getElementById("ask");
if (form) {
  completing(form.elements.sql);
  pricing(form);
}

const exhibit = document.getElementById("exhibit");
if (exhibit) exhibiting(exhibit);

for (const upload of document.querySelectorAll("form.upload")) uploading(upload);

const line = document.querySelector("[data-events]");
if (line) following(line);

for (const input of document.querySelectorAll("[data-into]")) reading(input);
for (const input of document.querySelectorAll("[data-program-folder]")) readingFolder(input);
for (const one of document.querySelectorAll("form[data-busy]")) busy(one);
for (const one of document.querySelectorAll("form[data-checklist]")) checklist(one);
