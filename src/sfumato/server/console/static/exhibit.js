// An exhibit follows its sliders: the server draws, and what it says is written as text.
const WAIT_MS = 150;

export function exhibiting(form) {
  const again = form.querySelector("[data-again-with]");
  let timer, asked;
  let seed = Number(again?.dataset.againWith ?? 0);

  const now = async () => {
    asked?.abort();
    asked = new AbortController();
    form.querySelector("#shown").classList.add("waiting");
    const query = new URLSearchParams(new FormData(form));
    query.set("seed", String(seed));
    try {
      const reply = await fetch(`${form.dataset.live}?${query}`, { signal: asked.signal });
      const said = await reply.json();
      if (said.refused) tell(form, `${said.refused.cause} ${said.refused.next}`);
      else show(form, said);
    } catch (problem) {
      if (problem.name !== "AbortError") tell(form, "The lab did not answer. Is it still running?");
    }
  };

  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => void now(), WAIT_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    seed = (seed + 1) % 1000;
    void now();
  });
}

const slot = (form, name) => form.querySelector(`[data-slot="${name}"]`);

function tell(form, words) {
  form.querySelector("#shown").classList.remove("waiting");
  slot(form, "summary").textContent = words;
}

function show(form, said) {
  tell(form, said.summary);
  slot(form, "notes").textContent = said.notes;
  for (const [name, value] of Object.entries(said.values)) {
    form.querySelector(`[data-value="${name}"]`).textContent = value;
    form.elements[name].setAttribute("aria-valuetext", value);
  }
  for (const source of form.querySelectorAll("source")) {
    source.srcset = said.picture + source.dataset.as;
  }
  const picture = form.querySelector("img");
  picture.src = `${said.picture}&look=light`;
  picture.alt = said.summary;
  slot(form, "head").replaceChildren(...said.head.map((text) => cell("th", text)));
  slot(form, "rows").replaceChildren(...said.rows.map(row));
}

function row(cells) {
  const made = document.createElement("tr");
  made.append(...cells.map((text) => cell("td", text)));
  return made;
}

function cell(tag, text) {
  const made = document.createElement(tag);
  made.className = "n";
  made.textContent = text;
  if (tag === "th") made.scope = "col";
  return made;
}
