// A respondent's page. The true answers are read from the fields when the coins are flipped, and
// go nowhere else: not to the network, not into storage. What is stored with the coins' secret is the
// randomised report; where no series asks for the secret again, it is erased with the receipt.
import { blind, bytesOf, isProven, isSigned, keyOf, shown, unblind } from "./survey-blind.js";
import { idOf, inWords, markOf, reportOf, spelled } from "./survey-coins.js";

const SECRET = "sfumato-survey-secret";
const SPENT = "sfumato-survey-spent";
const WAITING = "sfumato-survey-waiting";
const DONE = "sfumato-survey-done";
const SERIES = "sfumato-survey-series";
const PADDED = 2048; // more than any body has: what is encrypted shows no length of a report
// After these the same ballot can never count; after anything else it waits, and is sent again.
const FOR_GOOD = new Set([
  "bad-report", "bad-request", "ballot-spent", "budget-exceeded", "invitation-unknown",
  "invitation-used", "survey-not-open", "survey-unknown",
]);
const find = (id) => document.getElementById(id);

const memory = new Map(); // what a browser would not keep
function kept(name, otherwise) {
  if (memory.has(name)) return memory.get(name);
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
function keep(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    memory.delete(name);
  } catch {
    memory.set(name, value);
  }
}

// Whoever forgets the secret of a series draws anew in each wave, and all waves tell more. A store
// that is nearly full takes one thing and not the next, so what was kept is looked at itself.
function remembers() {
  try {
    localStorage.setItem("sfumato-survey-tried", "1");
    localStorage.removeItem("sfumato-survey-tried");
    return !memory.has(SECRET) && !memory.has(SERIES);
  } catch {
    return false;
  }
}

// What was answered is still there, and the secret that it was answered with is not.
function hasLostSecret() {
  return Object.keys(kept(SERIES, {})).length > 0 && !kept(SECRET, {}).series;
}

function mayForget(published) {
  return published.bound_to === "series" && (!remembers() || hasLostSecret());
}

function saysForgetful() {
  trouble("This browser does not let this page store data, and this survey is part of a series.",
    "Without stored data, each wave would tell more about you, so nothing is sent. Allow this site to store data.");
}

// One secret for all series; every other survey has its own, until it is answered.
function secretOf(survey, published) {
  const name = published.bound_to === "series" ? "series" : survey;
  const all = kept(SECRET, {});
  if (!all[name]) {
    all[name] = shown(crypto.getRandomValues(new Uint8Array(32)));
    keep(SECRET, all);
  }
  return bytesOf(all[name]);
}

function forgetSecret(survey) {
  const all = kept(SECRET, {});
  delete all[survey];
  keep(SECRET, all);
}

// What the lasting answers of a series with `ever` are remembered under: other questions, or another
// `ever`, would be lasting answers of their own, and all waves would tell more than was promised. So
// would another order, where one question is drawn: the draw hangs on it (features/surveys/randomised_report.py, lasting).
function seriesOf({ survey, memos }) {
  const name = JSON.stringify([survey.asks, survey.series]);
  const lasting = survey.budget === "sampled" ? memos : [...memos].sort();
  return { name, memos: lasting.join(" "), lasts: Boolean(survey.ever) };
}

function isNextWave(published) {
  const { name, memos, lasts } = seriesOf(published);
  const known = kept(SERIES, {})[name];
  return !known || known.memos === memos || !(lasts || known.lasts);
}

function saysOtherwise() {
  trouble("This wave differs from the wave that you answered on this device.",
    "It could reveal more about you than was promised, so nothing is sent. Ask whoever invited you.");
}

function keepWave(published) {
  const { name, memos, lasts } = seriesOf(published);
  if (!published.survey.series) return;
  const all = kept(SERIES, {});
  const known = all[name] ?? { memos, lasts };
  // Several kinds were answered: no wave with `ever` is like all of them, for good.
  const same = known.memos === memos ? memos : "";
  keep(SERIES, { ...all, [name]: { memos: same, lasts: lasts || known.lasts } });
}

class Refused extends Error {
  constructor({ code, cause, next }) {
    super(cause);
    this.code = code;
    this.next = next;
  }
}

// No cookie, no session, no referrer; null where it is not sure that the house has it: no network,
// a busy house, or something before the house that spoke instead.
async function post(path, body, wanted) {
  let reply;
  try {
    reply = await fetch(path, {
      method: "POST", credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store",
      headers: { "Content-Type": "application/json" }, body: JSON.stringify(body).padEnd(PADDED),
    });
  } catch {
    return null;
  }
  if (reply.status === 429 || reply.status === 503) return null;
  const said = await reply.json().catch(() => null);
  if (typeof said?.refused?.code === "string") throw new Refused(said.refused);
  return reply.ok && typeof said?.[wanted] === "string" ? said : null;
}

// A ballot that is ready: its answers are fallen, its token is blinded. It waits as this.
export async function prepared(published, survey, code, truths, deviceSecret) {
  const key = keyOf(published.key);
  const token = crypto.getRandomValues(new Uint8Array(32));
  const hidden = await blind(key, token);
  const report = await reportOf(published, survey, truths, deviceSecret);
  return {
    survey, code, n: published.key.n, e: published.key.e, token: shown(token),
    blinded: shown(hidden.message), back: hidden.inverse.toString(16), signature: null,
    said: spelled(report), report,
  };
}

// Sends what waits, as far as there is a network; sent again, it counts once.
export async function send(waiting, keepIt) {
  if (waiting.signature === null) {
    const given = await post(`/v1/surveys/${waiting.survey}/tokens`, {
      invitation: waiting.code, blinded: waiting.blinded,
    }, "signed");
    if (given === null) return null;
    const key = keyOf({ n: waiting.n, e: waiting.e });
    const signature = unblind(key, bytesOf(given.signed), BigInt(`0x${waiting.back}`));
    if (!(await isSigned(key, bytesOf(waiting.token), signature))) {
      throw new Refused({
        code: "ballot-forged", cause: "The service has not signed your ballot token.",
        next: "",
      });
    }
    Object.assign(waiting, { signature: shown(signature), code: "", back: "", blinded: "" });
    keepIt(waiting);
  }
  return post(`/v1/surveys/${waiting.survey}/reports`, {
    token: waiting.token, signature: waiting.signature, said: waiting.said,
  }, "counted");
}

function truthOf(field, question) {
  const inputs = [...field.querySelectorAll("input")];
  const chosen = inputs.filter((one) => one.checked);
  switch (question.kind) {
    case "yes-no":
      return chosen[0]?.value ? chosen[0].value === "0" : null;
    case "choice":
      return chosen[0]?.value ? question.options[Number(chosen[0].value)] : null;
    case "several":
      if (chosen.length === 0 || chosen.some((one) => one.value === "")) return null;
      if (chosen.some((one) => one.value === "none")) return chosen.length === 1 ? [] : undefined;
      return chosen.map((one) => question.options[Number(one.value)]);
    case "number": {
      if (inputs[0].validity.badInput) return undefined;
      if (inputs[0].value === "") return null;
      const value = Number(inputs[0].value);
      return Number.isInteger(value) && inputs[0].checkValidity() ? value : undefined;
    }
    default: {
      const places = [...field.querySelectorAll("select")].map((one) => one.value);
      if (places.every((one) => one === "")) return null;
      const order = question.options.map((_, at) => places.indexOf(String(at + 1)));
      return order.includes(-1) ? undefined : order.map((at) => question.options[at]);
    }
  }
}

function wanted({ kind, low, high, required }) {
  if (required) return "The question needs an answer. Nothing has been sent.";
  if (kind === "number") return `Give a whole number from ${low} to ${high}, or leave the field empty to give no answer.`;
  if (kind === "ranking") return "Give each place once, or leave all places empty to give no answer.";
  return "“None of these” and “I give no answer” cannot be combined with other options.";
}

// Undefined where a field is not filled in as it asks.
function truths(published) {
  const found = {};
  for (const [number, question] of published.survey.questions.entries()) {
    const field = document.querySelector(`[data-question="${number}"]`);
    const truth = truthOf(field, question);
    if (truth === undefined || (truth === null && question.required)) {
      field.querySelector("input, select").focus();
      trouble(`“${question.text}” has an answer that does not fit.`, wanted(question));
      return undefined;
    }
    found[question.id] = truth;
  }
  return found;
}

function trouble(cause, next) {
  const box = find("trouble");
  box.hidden = !cause;
  box.querySelector(".cause").textContent = cause;
  box.querySelector(".next").textContent = next;
  if (cause) box.scrollIntoView({ block: "center" });
}

// What was kept before an update has another name.
function saidIn(one) {
  return one.said ?? one.category;
}

function listed(published, report) {
  return report.flatMap((one) => {
    const question = published.survey.questions[one.question];
    const term = document.createElement("dt");
    const words = document.createElement("dd");
    term.textContent = question.text;
    words.textContent = inWords(question, published.coins[one.question], one.slot, saidIn(one));
    return [term, words];
  });
}

function surer(epsilon) {
  const left = 100 / (1 + Math.exp(epsilon)); // as features/surveys/privacy_statement.py: rounded up
  if (left >= 1) return String(Math.ceil(100 - left));
  const digits = Math.min(12, Math.max(1, Math.ceil(-Math.log10(left))));
  return (100 - Math.floor(left * 10 ** digits) / 10 ** digits).toFixed(digits);
}

function showSum() {
  const spent = Object.values(kept(SPENT, {}));
  if (spent.length === 0) return;
  const sum = spent.reduce((all, one) => all + one, 0);
  find("sum").hidden = false;
  find("sum-words").textContent =
    `In all surveys that were answered on this device: ε = ${(Math.ceil(100 * sum) / 100).toFixed(2)}. Somebody who sees ` +
    `all your reports, and knows that they are yours, can become ${surer(sum)} in 100 sure of ` +
    "something of which they were 50 in 100 sure. Every sent answer counts, also a repeated one.";
}

// By survey and question: a sum that hung on the answers would tell them.
function note(survey, report) {
  const spent = kept(SPENT, {});
  for (const one of report) {
    const name = `${survey}.${one.question}`;
    spent[name] = (spent[name] ?? 0) + one.cost;
  }
  keep(SPENT, spent);
}

async function receipt(published, waiting, came) {
  const mark = await markOf(bytesOf(waiting.token), waiting.said);
  find("ballot").hidden = true;
  find("receipt").hidden = false;
  find("came").textContent = came;
  find("mark").textContent = mark;
  find("receipt-said").textContent = waiting.report.map((one) =>
    inWords(published.survey.questions[one.question], published.coins[one.question], one.slot,
      saidIn(one))).join("; ");
  find("thanks").focus();
  showSum();
}

async function deliver(page, waiting) {
  const said = await send(waiting, (one) => page.keepWaiting(one));
  if (said === null) {
    find("progress").textContent =
      "There is no network, or the server is busy. Your ballot is stored on this device, and is sent later, once.";
    return;
  }
  page.keepWaiting(null);
  const { survey, token, said: text, report } = waiting;
  keep(DONE, { ...kept(DONE, {}), [survey]: { token, said: text, report } });
  forgetSecret(survey);
  await receipt(page.published, waiting, "Your ballot has arrived, and counts once.");
}

function codeOf(hash) {
  try {
    return decodeURIComponent(hash.slice(1));
  } catch { // not as an address is written
    return hash.slice(1);
  }
}

class Page {
  constructor(ballot, published) {
    this.survey = ballot.dataset.survey;
    this.published = published;
    this.ready = null;
    this.isSending = false;
    this.isCalled = false; // the network came back while something was still being sent
    this.noted = new Set(); // what was sent from here, so that a second try costs nothing
  }

  keepWaiting(waiting) {
    const all = kept(WAITING, {});
    if (waiting === null) delete all[this.survey];
    else all[this.survey] = waiting;
    keep(WAITING, all);
  }

  // One device has one ballot: another page of it may have sent it, or be sending it, since this one
  // was opened. A second would be a second draw about the same answers.
  async isElsewhere() {
    const done = kept(DONE, {})[this.survey];
    if (done) {
      await receipt(this.published, done, "You have answered this survey on this device.");
      return true;
    }
    const waiting = kept(WAITING, {})[this.survey];
    if (!waiting || waiting.token === this.ready?.token) return false;
    await this.again();
    return true;
  }

  async flip() {
    trouble("", "");
    if (await this.isElsewhere()) return;
    const found = truths(this.published);
    if (found === undefined) return;
    const code = find("code").value.trim();
    if (code === "") {
      find("code").focus();
      trouble("Your invitation is missing.", "Enter the code that you were given.");
      return;
    }
    const secret = mayForget(this.published) ? null : secretOf(this.survey, this.published);
    if (secret === null || mayForget(this.published)) {
      saysForgetful();
      return;
    }
    this.ready = await prepared(this.published, this.survey, code, found, secret);
    find("said").replaceChildren(...listed(this.published, this.ready.report));
    find("exactly").textContent = `1. ${JSON.stringify({ invitation: code, blinded: this.ready.blinded })}\n\n`
      + `2. without it: ${JSON.stringify({ token: this.ready.token, signature: "(of 1, unblinded)", said: this.ready.said })}`;
    find("asking").hidden = true;
    find("fallen").hidden = false;
    find("sends").focus();
  }

  back() {
    find("asking").hidden = false;
    find("fallen").hidden = true;
    find("answers").scrollIntoView();
  }

  async send() {
    if (this.isSending || this.ready === null) return;
    trouble("", "");
    if (await this.isElsewhere()) return;
    if (!isNextWave(this.published)) { // another page of this device was quicker
      saysOtherwise();
      return;
    }
    keepWave(this.published);
    if (mayForget(this.published)) {
      saysForgetful();
      return;
    }
    this.isSending = true;
    find("progress").textContent = "Your ballot is being sent.";
    find("back").hidden = true;
    if (!this.noted.has(this.ready.said)) note(this.survey, this.ready.report);
    this.noted.add(this.ready.said);
    this.keepWaiting(this.ready);
    await this.deliver();
  }

  async deliver() {
    try {
      await deliver(this, this.ready);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      find("progress").textContent = "";
      if (FOR_GOOD.has(error.code)) {
        this.keepWaiting(null);
        find("back").hidden = false;
        trouble(error.message, error.next);
      } else {
        trouble(error.message, "Your ballot is stored on this device, and is sent again, once.");
      }
    } finally {
      this.isSending = false;
    }
    if (this.isCalled) await this.again();
  }

  async begin() {
    const done = kept(DONE, {})[this.survey];
    if (done) {
      await receipt(this.published, done, "You have answered this survey on this device.");
      return;
    }
    find("ballot").hidden = false;
    find("code").value = codeOf(location.hash);
    history.replaceState(null, "", location.pathname);
    find("flip").addEventListener("click", () => this.flip());
    find("back").addEventListener("click", () => this.back());
    find("send").addEventListener("click", () => this.send());
    addEventListener("online", () => this.again());
    showSum();
    await this.again();
  }

  async again() {
    const waiting = kept(WAITING, {})[this.survey];
    this.isCalled = this.isSending;
    if (!waiting || this.isSending) return;
    this.isSending = true;
    this.ready = waiting;
    find("said").replaceChildren(...listed(this.published, waiting.report));
    find("asking").hidden = true;
    find("fallen").hidden = false;
    find("back").hidden = true;
    await this.deliver();
  }
}

async function begin(ballot) {
  for (const element of document.querySelectorAll("[data-unscripted]")) element.hidden = true;
  if (!globalThis.crypto?.subtle) {
    trouble("This page did not come over an encrypted connection.",
      "So nothing can be signed here. Ask whoever invited you for an address with https.");
    return;
  }
  const { survey, text } = ballot.dataset;
  if ((await idOf(text)) !== survey) {
    trouble("This page does not show the survey of your link.", "Nothing was sent. Ask whoever invited you.");
    return;
  }
  const published = JSON.parse(text);
  if (!(await isProven(keyOf(published.key), JSON.parse(ballot.dataset.proof).map(bytesOf)))) {
    trouble("The survey's key could sign differently for different people, so it is not trusted.",
      "Nothing was sent. Ask whoever invited you.");
    return;
  }
  if (mayForget(published)) {
    saysForgetful();
    return;
  }
  if (!isNextWave(published)) {
    saysOtherwise();
    return;
  }
  find("print").addEventListener("click", () => print());
  await new Page(ballot, published).begin();
}

const ballot = document.getElementById("ballot");
if (ballot) begin(ballot);
