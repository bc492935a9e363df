// A program's file is read into the text field, and its name into another; a button that takes long says so, and is not pressed twice.
export function reading(input) {
  input.addEventListener("change", async () => {
    const [file] = input.files;
    const into = document.getElementById(input.dataset.into);
    if (!file) return;
    into.value = await file.text();
    nameInto(input, file.name);
  });
}

// The name of the chosen file or folder goes into the field that the input says, if it says one.
export function nameInto(input, name) {
  const into = document.getElementById(input.dataset.nameInto);
  if (into) into.value = name.slice(0, into.maxLength);
}

export function busy(form) {
  form.addEventListener("submit", () => {
    form.querySelector("[role=status]").textContent = form.dataset.busy;
    for (const button of form.querySelectorAll("button")) button.disabled = true;
  });
}

// A checklist opens its button once every box is ticked. The service asks for the same without script.
export function checklist(form) {
  const boxes = [...form.querySelectorAll("[data-check]")];
  const button = form.querySelector("[data-checked]");
  const look = () => {
    button.disabled = !boxes.every((box) => box.checked);
  };
  for (const box of boxes) box.addEventListener("change", look);
  look();
}
