// What a device makes of the truth, bit by bit as in features/surveys/randomised_report.py.
import { hexOf } from "./survey-blind.js";
import { among, say } from "./survey-randomisers.js";

const PARTS = 2 ** 32;
const MOST_STEPS = 1000; // of a number's grid
const NO_ANSWER = "no answer";
const text = new TextEncoder();

// Eight words that follow from the secret and the label, and from nothing else.
export async function wordsOf(secret, label) {
  const how = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", secret, how, false, ["sign"]);
  const made = await crypto.subtle.sign("HMAC", key, text.encode(JSON.stringify(label)));
  const view = new DataView(made);
  return Array.from({ length: 8 }, (_, at) => view.getUint32(4 * at, true));
}

export function pairsOf(count) {
  const pairs = [];
  for (let first = 0; first < count; first += 1) {
    for (let second = first + 1; second < count; second += 1) pairs.push([first, second]);
  }
  return pairs;
}

export function slotsOf(question) {
  if (question.kind === "several") return question.options.length;
  return question.kind === "ranking" ? pairsOf(question.options.length).length : 1;
}

export function categoriesOf(question) {
  const answers = question.kind === "choice" ? question.options.length : 2;
  return question.required ? answers : answers + 1;
}

// The true answer of one part as a whole number; null is no answer.
export function valueOf(question, slot, truth) {
  if (truth === null || truth === undefined) {
    if (question.required) throw new Error("a question needs an answer");
    return question.kind === "number" ? question.low - 1 : -1;
  }
  if (question.kind === "yes-no") return truth ? 0 : 1;
  if (question.kind === "choice") return question.options.indexOf(truth);
  if (question.kind === "several") return truth.includes(question.options[slot]) ? 0 : 1;
  if (question.kind === "number") return truth;
  const [first, second] = pairsOf(question.options.length)[slot];
  const place = (at) => truth.indexOf(question.options[at]);
  return place(first) < place(second) ? 0 : 1;
}

// Which of the ways to answer the value is, before the noise.
export function categoryOf(question, value, word) {
  const silent = categoriesOf(question) - 1;
  if (question.kind !== "number") return value < 0 ? silent : value;
  if (value < question.low) return silent;
  const width = BigInt(question.high) - BigInt(question.low);
  const above = (BigInt(value) - BigInt(question.low)) * BigInt(PARTS);
  return BigInt(word) * width < above ? 1 : 0;
}

export function unitOf({ low, high }) {
  return Math.ceil((high - low) / MOST_STEPS);
}

function stepsOf(question) {
  return Math.ceil((question.high - question.low) / unitOf(question));
}

// The step of a true number: between two, the upper with the chance that makes it right.
export function stepOf(question, value, word) {
  if (value < question.low) return stepsOf(question) + 1;
  const unit = unitOf(question);
  const rest = (value - question.low) % unit;
  const isUp = BigInt(word) * BigInt(unit) < BigInt(rest) * BigInt(PARTS);
  return Math.floor((value - question.low) / unit) + (isUp ? 1 : 0);
}

const ON_A_GRID = ["duchi", "hybrid", "piecewise"];

// A wave says a fresh lie about a lasting one, which hangs on the truth and is never sent.
async function ofWave(coin, kept, secret, label) {
  const [first, second] = await wordsOf(secret, [...label, kept]);
  return say({ kind: "k-ary", size: coin.size, truth: coin.momentary }, kept, [first, second]);
}

async function saidOf(question, coin, slot, value, secret, { scope, survey, memo }) {
  const words = await wordsOf(secret, ["said", scope, memo, slot, value]);
  if (ON_A_GRID.includes(coin.kind)) return say(coin, stepOf(question, value, words[7]), words);
  const category = categoryOf(question, value, words[2]);
  if (coin.kind !== "waves") return say(coin, category, words);
  const kept = say({ kind: "k-ary", size: coin.size, truth: coin.permanent }, category, words);
  return ofWave(coin, kept, secret, ["wave", survey, memo, slot]);
}

function scopeOf(published, survey) {
  return published.bound_to === "series" ? "" : survey;
}

async function answered(published, survey, number, truth, secret) {
  const [question, coin] = [published.survey.questions[number], published.coins[number]];
  const named = { scope: scopeOf(published, survey), survey, memo: published.memos[number] };
  const [word] = await wordsOf(secret, ["slot", named.scope, named.memo]);
  const slot = among(word, slotsOf(question));
  const value = valueOf(question, slot, truth);
  const said = await saidOf(question, coin, slot, value, secret, named);
  return { question: number, slot, said, cost: published.costs[number] };
}

// Every answer that will be sent, for truths by question id; which are drawn comes first.
export async function reportOf(published, survey, truths, secret) {
  const { questions, budget } = published.survey;
  for (const { id, required } of questions) {
    if (required && (truths[id] ?? null) === null) throw new Error("a question needs an answer");
  }
  let chosen = questions.map((_, number) => number);
  if (budget === "sampled") {
    const scope = scopeOf(published, survey);
    const [word] = await wordsOf(secret, ["question", scope, ...published.memos]);
    chosen = [among(word, questions.length)];
  }
  const made = [];
  for (const number of chosen) {
    made.push(await answered(published, survey, number, truths[questions[number].id], secret));
  }
  return made;
}

export function spelled(report) {
  return report.map((one) => `${one.question}.${one.slot}.${one.said}`).join(" ");
}

// In words, what one randomised answer says.
export function inWords(question, coin, slot, said) {
  switch (coin.kind) {
    case "subset":
      return asList(question, coin, said);
    case "piecewise":
      return asStretch(question, coin, said);
    case "hybrid":
      if (said % 256 === 0) return asStretch(question, coin, Math.floor(said / 256));
      return asAnswer(question, slot, Math.floor(said / 256));
    default:
      return asAnswer(question, slot, said);
  }
}

function asList(question, { field, chosen }, said) {
  const [times, shift] = [said % 65536, Math.floor(said / 65536)];
  const words = question.required ? question.options : [...question.options, NO_ANSWER];
  const inside = words.filter(
    (_, at) => (times * at + shift) % field < chosen,
  );
  return inside.length ? `one of: ${inside.join(", ")}` : "none of these";
}

function asStretch(question, { steps, window }, place) {
  if (place >= steps + window) return NO_ANSWER;
  const unit = unitOf(question);
  const low = question.low + unit * Math.max(0, place - window + 1);
  const high = Math.min(question.high, question.low + unit * Math.min(steps, place));
  const said = low >= high ? `${high}` : `${low} to ${high}`;
  return `${said} ${question.unit}`.trim();
}

function asAnswer(question, slot, category) {
  if (!question.required && category === categoriesOf(question) - 1) return NO_ANSWER;
  if (question.kind === "choice") return question.options[category];
  if (question.kind === "number") {
    return `${category ? question.high : question.low} ${question.unit}`.trim();
  }
  if (question.kind === "ranking") {
    const pair = pairsOf(question.options.length)[slot];
    const order = category ? [pair[1], pair[0]] : pair;
    return order.map((at) => question.options[at]).join(" before ");
  }
  const tick = category ? "no" : "yes";
  return question.kind === "yes-no" ? tick : `${question.options[slot]}: ${tick}`;
}

export async function tokenDigest(token) {
  const domain = text.encode("sfumato-ballot-token/1\n");
  return digest(new Uint8Array([...domain, ...token]));
}

// What the respondent finds their report by, among those that all may read.
export async function markOf(token, saidText) {
  const mark = await digest(
    text.encode(`sfumato-ballot-mark/1\n${await tokenDigest(token)}\n${saidText}`),
  );
  return mark.slice(0, 16);
}

// The id of a survey is the digest of its whole text: nobody can be shown another.
export async function idOf(surveyText) {
  const made = await crypto.subtle.digest(
    "SHA-256", text.encode(`sfumato-survey/1\n${surveyText}`),
  );
  const bits = Array.from(new Uint8Array(made).slice(0, 20), (byte) =>
    byte.toString(2).padStart(8, "0")).join("");
  return bits.match(/.{5}/g).map((five) => "abcdefghijklmnopqrstuvwxyz234567"[parseInt(five, 2)])
    .join("");
}

async function digest(bytes) {
  return hexOf(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}
