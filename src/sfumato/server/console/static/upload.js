// A file goes up as it is, with its name; the page that comes next asks for the card.
export function uploading(form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void send(form, form.elements.file.files[0]);
  });
}

async function send(form, file) {
  const said = document.getElementById("sent");
  const button = form.querySelector("button");
  said.textContent = `Sending ${file.name} …`;
  button.disabled = true;
  try {
    const reply = await fetch(`${form.dataset.to}?name=${encodeURIComponent(file.name)}`, {
      method: "PUT",
      headers: { "X-Csrf": form.dataset.csrf, "Content-Type": "application/octet-stream" },
      body: file,
    });
    const answer = await reply.json();
    if (answer.upload) return location.assign(`${form.dataset.to}/${answer.upload}`);
    said.textContent = `${answer.refused.cause} ${answer.refused.next}`;
  } catch {
    said.textContent = "The file was not sent. Check that the service is running.";
  }
  button.disabled = false;
}
