// Blind RSA signatures (RFC 9474, RSABSSA-SHA384-PSS-Deterministic), as in features/surveys/blind_signatures.py.
const HASH_BYTES = 48;

export function bytesOf(text) {
  const plain = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}

export function shown(bytes) {
  const plain = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(plain).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

export function hexOf(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function numberOf(bytes) {
  return BigInt(`0x${hexOf(bytes) || "0"}`);
}

function bytesFrom(number, size) {
  const hex = number.toString(16).padStart(2 * size, "0");
  return Uint8Array.from({ length: size }, (_, at) => parseInt(hex.slice(2 * at, 2 * at + 2), 16));
}

function power(base, exponent, modulus) {
  let [result, square, left] = [1n, base % modulus, exponent];
  while (left > 0n) {
    if (left & 1n) result = (result * square) % modulus;
    square = (square * square) % modulus;
    left >>= 1n;
  }
  return result;
}

// Returns null where there is none.
function inverse(number, modulus) {
  let [r0, r1, t0, t1] = [modulus, number % modulus, 0n, 1n];
  while (r1 > 0n) {
    const times = r0 / r1;
    [r0, r1] = [r1, r0 - times * r1];
    [t0, t1] = [t1, t0 - times * t1];
  }
  return r0 === 1n ? ((t0 % modulus) + modulus) % modulus : null;
}

function joined(...parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

async function sha384(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-384", bytes));
}

async function stretched(seed, length) {
  const parts = [];
  for (let round = 0; round * HASH_BYTES < length; round += 1) {
    parts.push(await sha384(joined(seed, bytesFrom(BigInt(round), 4))));
  }
  return joined(...parts).slice(0, length);
}

// EMSA-PSS (RFC 8017, 9.1.1), of so many bits.
export async function encode(message, bits, salt) {
  const length = Math.ceil(bits / 8);
  const digest = await sha384(joined(new Uint8Array(8), await sha384(message), salt));
  const block = joined(
    new Uint8Array(length - salt.length - HASH_BYTES - 2), new Uint8Array([1]), salt,
  );
  const mask = await stretched(digest, block.length);
  const masked = block.map((byte, at) => byte ^ mask[at]);
  masked[0] &= 0xff >> (8 * length - bits);
  return joined(masked, digest, new Uint8Array([0xbc]));
}

export function keyOf(table) {
  const modulus = BigInt(`0x${table.n}`);
  const bits = modulus.toString(2).length;
  return { modulus, exponent: BigInt(table.e), bits, size: Math.ceil(bits / 8) };
}

export async function blindWith(key, token, salt, factor) {
  const encoded = numberOf(await encode(token, key.bits - 1, salt));
  if (inverse(encoded, key.modulus) === null) throw new Error("the key has a factor that marks");
  const hidden = (encoded * power(factor, key.exponent, key.modulus)) % key.modulus;
  const back = inverse(factor, key.modulus);
  return back === null ? null : { message: bytesFrom(hidden, key.size), inverse: back };
}

export async function blind(key, token) {
  const salt = crypto.getRandomValues(new Uint8Array(HASH_BYTES));
  for (;;) {
    const random = crypto.getRandomValues(new Uint8Array(key.size + 16));
    const factor = numberOf(random) % key.modulus;
    const made = factor > 1n ? await blindWith(key, token, salt, factor) : null;
    if (made !== null) return made;
  }
}

const EXPONENT = 65537n; // a prime: what roots show hangs on that
const ROOTS = 8;

// Numbers that follow from the key by a hash, so that nobody has chosen them.
async function nobodys(key) {
  const start = joined(new TextEncoder().encode("sfumato-key-proof/1\n"),
    bytesFrom(key.modulus, key.size));
  const made = [];
  for (let place = 0; place < ROOTS; place += 1) {
    const seed = await sha384(joined(start, new Uint8Array([place])));
    made.push(numberOf(await stretched(seed, key.size + 16)) % key.modulus);
  }
  return made;
}

// A key whose exponent divides the order of its group could mark people: it has no such roots.
export async function isProven(key, roots) {
  const isSized = key.bits >= 2048 && key.bits <= 4096 && (key.modulus & 1n) === 1n;
  if (!isSized || key.exponent !== EXPONENT || roots.length !== ROOTS) return false;
  const numbers = await nobodys(key);
  return numbers.every((number, place) => inverse(number, key.modulus) !== null
    && power(numberOf(roots[place]), key.exponent, key.modulus) === number);
}

export function unblind(key, signed, back) {
  return bytesFrom((numberOf(signed) * back) % key.modulus, key.size);
}

// The house cannot mark a person by a signature that is none.
export async function isSigned(key, token, signature) {
  const jwk = {
    kty: "RSA", alg: "PS384", ext: true,
    n: shown(bytesFrom(key.modulus, key.size)), e: shown(bytesFrom(key.exponent, 3)),
  };
  const how = { name: "RSA-PSS", hash: "SHA-384", saltLength: HASH_BYTES };
  const made = await crypto.subtle.importKey("jwk", jwk, how, false, ["verify"]);
  return crypto.subtle.verify(how, made, signature, token);
}
