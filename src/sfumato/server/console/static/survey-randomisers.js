// The randomisers that a survey's questions have, bit by bit as dp/local: fresh words go in, and
// the number that the report's bytes are, the lowest first, comes out. No product is above 2**53.
// Held by tests/dp/local/vectors.json, which Python is held by too.
const PARTS = 2 ** 32;

export function among(word, outcomes) {
  return Math.floor((word * outcomes) / PARTS);
}

// A draw of two words: outcomes is at most 2**20.
export function among64(high, low, outcomes) {
  return Math.floor((high * outcomes + Math.floor((low * outcomes) / PARTS)) / PARTS);
}

function kAry({ size, truth }, value, words) {
  const drawn = among(words[1], size);
  return words[0] < truth ? value : drawn;
}

// A set of answers: those v with (times * v + shift) % field < chosen.
function subset({ field, chosen, truth }, value, words) {
  const times = 1 + among64(words[0], words[1], field - 1);
  const inside = among(words[3], chosen);
  const anywhere = among(words[3], field);
  const place = words[2] < truth ? inside : anywhere;
  const shift = (place + field - ((times * value) % field)) % field;
  return times + shift * 65536;
}

// A number's end: 0 low, 1 high, 2 no answer.
function duchi({ steps, truth }, value, words) {
  const up = among64(words[0], words[1], steps) < Math.min(value, steps) ? 1 : 0;
  const end = value > steps ? 2 : up;
  const drawn = among(words[3], 3);
  return words[2] < truth ? end : drawn;
}

// A place in the window of a number, or any place; no answer has a window behind all others.
function piecewise({ steps, window, truth }, value, words) {
  const start = value > steps ? steps + window : value;
  const told = start + among(words[1], window);
  const anywhere = among(words[1], steps + 2 * window);
  return words[0] < truth ? told : anywhere;
}

function hybrid(coin, value, words) {
  const place = piecewise(coin, value, words.slice(1, 3));
  const end = duchi({ steps: coin.steps, truth: coin.ends }, value, words.slice(1));
  return words[0] < coin.share ? 256 * place : 1 + 256 * end;
}

const KINDS = { duchi, hybrid, "k-ary": kAry, piecewise, subset };

// Throws where there is no such randomiser: nothing is said then.
export function say(coin, value, words) {
  return KINDS[coin.kind](coin, value, words);
}
