// Words of the card and of SQL, offered under the caret; the list never takes a key from who
// only wants to write: Enter and Tab take a word only after an arrow has chosen one.
const MOST = 8;

export function completing(field) {
  const words = JSON.parse(field.dataset.words);
  const list = document.createElement("ul");
  list.className = "offer";
  list.id = "offer";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Words");
  list.hidden = true;
  field.parentElement.after(list);
  field.setAttribute("aria-autocomplete", "list");
  field.setAttribute("aria-controls", list.id);
  let chosen = -1;

  const close = () => {
    list.hidden = true;
    chosen = -1;
    field.removeAttribute("aria-activedescendant");
  };
  const choose = (step) => {
    const items = [...list.children];
    chosen = (chosen + step + items.length) % items.length;
    items.forEach((item, n) => item.setAttribute("aria-selected", String(n === chosen)));
    field.setAttribute("aria-activedescendant", items[chosen].id);
  };
  const take = (word) => {
    const { from, to } = around(field);
    field.setRangeText(word, from, to, "end");
    close();
    field.focus();
    field.dispatchEvent(new Event("input", { bubbles: true }));
    close();
  };
  const open = () => {
    const { text } = around(field);
    const found = text ? matching(words, text) : [];
    chosen = -1;
    field.removeAttribute("aria-activedescendant");
    list.replaceChildren(...found.map((pair, n) => item(pair, n, take)));
    list.hidden = found.length === 0;
    if (found.length) put(list, field);
  };

  field.addEventListener("input", open);
  field.addEventListener("blur", () => setTimeout(close, 150));
  field.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown") choose(1);
    else if (event.key === "ArrowUp" && chosen >= 0) choose(-1);
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0)
      take(list.children[chosen].dataset.word);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
}

function item([word, what], number, take) {
  const made = document.createElement("li");
  const kind = document.createElement("span");
  made.id = `offer-${number}`;
  made.setAttribute("role", "option");
  made.setAttribute("aria-selected", "false");
  made.dataset.word = word;
  kind.textContent = what;
  made.append(word, kind);
  made.addEventListener("mousedown", (event) => {
    event.preventDefault();
    take(word);
  });
  return made;
}

// The word that ends at the caret; a key begins with its quote.
function around(field) {
  const before = field.value.slice(0, field.selectionStart);
  const text = /('[^']*|[A-Za-z_][\w.]*)$/.exec(before)?.[0] ?? "";
  return { text, from: before.length - text.length, to: field.selectionStart };
}

function matching(words, text) {
  const wanted = text.toLowerCase();
  const fits = words.filter(([word]) => {
    const lower = word.toLowerCase();
    return lower !== wanted && lower.startsWith(wanted);
  });
  return fits.slice(0, MOST);
}

// Sit under the caret: a copy of the text, laid out the same way, tells where that is.
function put(list, field) {
  const copy = document.createElement("div");
  const style = getComputedStyle(field);
  for (const name of ["fontFamily", "fontSize", "lineHeight", "padding", "borderWidth", "width", "boxSizing"])
    copy.style[name] = style[name];
  Object.assign(copy.style, {
    position: "absolute", visibility: "hidden", whiteSpace: "pre-wrap", overflowWrap: "break-word",
    top: "0", left: "0",
  });
  copy.append(field.value.slice(0, field.selectionStart));
  const caret = document.createElement("span");
  caret.append("|");
  copy.append(caret);
  field.after(copy);
  list.style.left = "0";
  const widest = field.clientWidth - list.offsetWidth;
  list.style.left = `${field.offsetLeft + Math.max(0, Math.min(caret.offsetLeft, widest))}px`;
  list.style.top = `${field.offsetTop + caret.offsetTop - field.scrollTop + caret.offsetHeight + 4}px`;
  copy.remove();
}
