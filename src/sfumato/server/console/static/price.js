// The price while you type: asks the server, and writes what it says as text.
const WAIT_MS = 350;
// The slider's steps: six to each factor of ten.
const LADDER = [0.01, 0.1, 1].flatMap((ten) => [1, 1.5, 2, 3, 5, 7].map((n) => round(ten * n))).concat(10);

export function pricing(form) {
  const slide = document.getElementById("slide");
  const { epsilon, error, error_column: column } = form.elements;
  let timer, asked;

  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => void now(), WAIT_MS);
  };
  const now = async () => {
    asked?.abort();
    asked = new AbortController();
    shown().classList.add("waiting");
    try {
      const reply = await fetch(form.dataset.price, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        signal: asked.signal,
      });
      const said = await reply.json();
      if (said.refused) refuse(said.refused);
      else {
        show(said);
        if (error.value) epsilon.value = said.epsilon.replaceAll(",", "");
        slide.value = place(epsilon.value);
      }
    } catch (problem) {
      if (problem.name === "AbortError") return;
      refuse({ cause: "The service did not answer the request for the price.", next: "Check that the service is running." });
    }
    shown().classList.remove("waiting");
  };

  slide.value = place(epsilon.value);
  slide.addEventListener("input", () => {
    epsilon.value = amount(slide.value);
    error.value = "";
    later();
  });
  epsilon.addEventListener("input", () => {
    error.value = "";
    slide.value = place(epsilon.value);
    later();
  });
  error.addEventListener("input", () => {
    const first = document.querySelector("#outputs option");
    if (!column.value && first) column.value = first.value;
    later();
  });
  form.addEventListener("input", (event) => {
    if (![slide, epsilon, error].includes(event.target)) later();
  });
  keep(form);
  void now();
}

// The question stays in this tab until signing out, so that coming back finds it.
function keep(form) {
  const name = `question:${form.dataset.name}`;
  const kept = sessionStorage.getItem(name);
  const { sql } = form.elements;
  if (kept && sql.value === sql.defaultValue && !document.querySelector(".refused")) sql.value = kept;
  form.addEventListener("submit", () => sessionStorage.setItem(name, sql.value));
}

const shown = () => document.getElementById("price");
const slot = (name) => document.querySelector(`[data-slot="${name}"]`);

function show(said) {
  for (const name of ["epsilon", "says", "odds", "paid"]) slot(name).textContent = said[name];
  slot("bounding").textContent = `${said.bounding}.`;
  slot("advice").replaceChildren(...said.advice.map((line) => made("li", line)));
  slot("delta").textContent = said.delta ? `and δ ${said.delta}` : "";
  slot("notes").textContent = said.notes.join("; ");
  slot("errors").replaceChildren(
    ...said.errors.flatMap(([name, error]) => [made("dt", name), made("dd", error, "num")]),
  );
  slot("fits").textContent = said.fits_words;
  slot("fits").classList.toggle("not", !said.fits);
  slot("head").replaceChildren(...said.offers.head.map(heading));
  slot("rows").replaceChildren(...said.offers.rows.map(row));
  document.getElementById("outputs").replaceChildren(...said.errors.map(([name]) => option(name)));
  document.querySelector("[data-take]").setAttribute("width", String(said.take));
  document.getElementById("problem").hidden = true;
  document.getElementById("others").hidden = false;
  shown().hidden = false;
}

function refuse(refused) {
  const problem = document.getElementById("problem");
  problem.textContent = `${refused.cause} ${refused.next}`;
  problem.hidden = false;
  shown().hidden = true;
  document.querySelector("[data-take]").setAttribute("width", "0");
}

function made(tag, text, name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

function heading(text) {
  const cell = made("th", text, "n");
  cell.scope = "col";
  return cell;
}

function option(name) {
  const choice = document.createElement("option");
  choice.value = name;
  return choice;
}

function row(cells) {
  const line = document.createElement("tr");
  line.append(...cells.map((text) => made("td", text, "n")));
  return line;
}

function amount(step) {
  return String(LADDER[Number(step)]);
}

function place(text) {
  const far = LADDER.map((one) => Math.abs(Math.log(one / (Number(text) || LADDER[0]))));
  return String(far.indexOf(Math.min(...far)));
}

function round(value) {
  return Number(value.toPrecision(2));
}
