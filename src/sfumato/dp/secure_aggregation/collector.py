"""The server side of secure aggregation: sum masked updates, then remove the remaining masks.

The sites do not trust the server: their own checks limit what it can learn (participant.py). The
server's checks keep a round running if some sites send invalid messages. The server refuses an
invalid message and stores nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import combinations, islice
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from sfumato.dp.refusal import Bug
from sfumato.dp.secure_aggregation import secret_sharing
from sfumato.dp.secure_aggregation.masks import (
    KEY_BYTES,
    add_mask,
    check_key,
    commitment,
    own_key,
    reduced,
    take_mask,
    to_signed,
    word_type,
)
from sfumato.dp.secure_aggregation.message_encoding import (
    decode_fields,
    encode_fields,
    exactly,
    malformed,
    refused,
)
from sfumato.dp.secure_aggregation.participant import HASH_BYTES, SEALED_BYTES, pair_key, too_few
from sfumato.dp.secure_aggregation.round_terms import Terms, invitation, opened

STAGES: Final = ("keys", "shares", "update", "agreement", "revealed", "over")
_PLACE: Final = 8
MAX_TRIES: Final = 1000  # most subsets of shares that the server tries if some shares are wrong


class Collector:
    """The server in one round of secure aggregation: it learns the sites' sum, not their numbers.

    For each stage of the round, the caller passes the sites' messages to `take`, then calls
    `close`.
    """

    def __init__(self, terms: Terms, convener: Ed25519PrivateKey) -> None:
        self.terms = terms
        self.stage = "keys"
        self._convener = convener
        self._said: dict[int, bytes] = {}  # place of the site -> its message of this stage
        self._asked = frozenset(range(len(terms.members)))
        self._keys: dict[int, bytes] = {}
        self._promises: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}  # receiver -> sender -> shares
        self._sharers = self._left = frozenset[int]()
        self._told = self._listed = b""  # hashes of the lists that were sent: sharers, survivors
        self._revealed: dict[int, dict[int, bytes]] = {}  # owner -> revealer -> share
        self._is_whole = False
        self._wrong: set[tuple[int, int]] = set()  # wrong shares: (revealer, owner)
        self._sum = np.zeros(terms.size, dtype=word_type(terms.bits))

    def invitation(self) -> bytes:
        """Return the signed invitation to the round: the first message to every site."""
        return invitation(self.terms, self._convener)

    def take(self, message: bytes) -> str:
        """Process one site's message of the current stage; return the name of the site.

        An invalid message is refused, and nothing of it is stored.
        """
        if self.stage == "over":
            raise refused("The round is over.")
        place = self._READ[self.stage](self, message)
        return self.terms.members[place].name

    def close(self) -> Mapping[str, bytes]:
        """End the current stage of the round; return the next message for each remaining site.

        The last stage has no next message. If too few sites sent a message, the round ends with a
        refusal.
        """
        if self.stage == "over":
            raise Bug("the round is over")
        if len(self._said) < self.terms.floor:
            self.stage = "over"
            raise too_few(len(self._said), self.terms.floor, "sites")
        sent = self._NEXT[self.stage](self)
        self._asked = frozenset(self._said)
        self._said = {}
        self.stage = STAGES[STAGES.index(self.stage) + 1]
        return {self.terms.members[place].name: said for place, said in sent.items()}

    def _open(self, message: bytes, count: int) -> tuple[int, list[bytes]]:
        place, said = opened(message, self.stage, self.terms, count)
        if place in self._said:
            raise refused("The site has already sent this message.")
        if place not in self._asked:
            raise refused("The site has left the round at an earlier stage.")
        return place, said

    def _read_keys(self, message: bytes) -> int:
        place, said = self._open(message, 2)
        keys = [exactly(key, KEY_BYTES, "keys") for key in said]
        for key in keys:
            check_key(key)
        self._keys[place] = keys[1]
        self._said[place] = message
        return place

    def _announce(self) -> Mapping[int, bytes]:
        announced = encode_fields("announced", *(self._said[place] for place in sorted(self._said)))
        return dict.fromkeys(self._said, announced)

    def _read_shares(self, message: bytes) -> int:
        place, (promise, sealed) = self._open(message, 2)
        shares = _by_place(sealed, "sealed", SEALED_BYTES)
        if shares.keys() != self.terms.near[place] & self._asked:
            raise refused("The shares are not for the site's neighbours.")
        self._promises[place] = exactly(promise, HASH_BYTES, "shares")
        for receiver, share in shares.items():
            self._sealed.setdefault(receiver, {})[place] = share
        self._said[place] = message
        return place

    def _deliver(self) -> Mapping[int, bytes]:
        self._sharers = frozenset(self._said)
        sharers = encode_fields("sharers", *(_place(place) for place in sorted(self._sharers)))
        self._told = sha256(sharers).digest()
        return {
            place: encode_fields("delivery", sharers, self._mine(place)) for place in self._sharers
        }

    def _mine(self, receiver: int) -> bytes:
        shares = self._sealed.get(receiver, {})
        return encode_fields(
            "mine", *(_place(sender) + shares[sender] for sender in sorted(shares))
        )

    def _read_update(self, message: bytes) -> int:
        claim, masked = decode_fields(message, "masked", 2)
        place, (told, digest) = self._open(claim, 2)
        # the other sites would refuse a list of survivors with such an update
        if told != self._told:
            raise refused("The site was told of other sharers.")
        exactly(masked, self._sum.nbytes, "masked")
        if sha256(masked).digest() != digest:
            raise refused("The update is not the one that the site signed.")
        words = np.frombuffer(masked, dtype=word_type(self.terms.bits))
        if (reduced(words, self.terms.bits) != words).any():
            raise malformed("masked")
        self._sum += words
        self._said[place] = claim
        return place

    def _ask_agreement(self) -> Mapping[int, bytes]:
        self._left = frozenset(self._said)
        survivors = encode_fields("survivors", *(self._said[place] for place in sorted(self._said)))
        self._listed = sha256(survivors).digest()
        return dict.fromkeys(self._said, survivors)

    def _read_agreement(self, message: bytes) -> int:
        place, said = self._open(message, 2)
        if said != [self._told, self._listed]:
            raise refused("The site agreed to another list of survivors.")
        self._said[place] = message
        return place

    def _ask_reveal(self) -> Mapping[int, bytes]:
        agreements = encode_fields(
            "agreements", *(self._said[place] for place in sorted(self._said))
        )
        return dict.fromkeys(self._said, agreements)

    def _read_revealed(self, message: bytes) -> int:
        place, (shares,) = self._open(message, 1)
        found = _by_place(shares, "unsealed", secret_sharing.SHARE_BYTES)
        if found.keys() != self.terms.near[place] & self._sharers:
            raise refused("The revealed shares are not those of the site's neighbours.")
        for other, share in found.items():
            self._revealed.setdefault(other, {})[place + 1] = share
        self._said[place] = message
        return place

    def _finish(self) -> Mapping[int, bytes]:
        digest = self.terms.digest
        for place in sorted(self._sharers):
            secret = self._secret_of(place)
            if place in self._left:
                take_mask(self._sum, own_key(secret, digest))
            else:
                self._unpair(place, X25519PrivateKey.from_private_bytes(secret))
        self._is_whole = True
        return {}

    def _secret_of(self, place: int) -> bytes:
        """Recover one secret of a site from the shares that its neighbours revealed.

        The secret gives a mask that the server must remove from the sum. For a survivor it is the
        seed of the self mask. For a site that dropped out it is the key of the pairwise masks.
        """
        shares = self._revealed.get(place, {})
        if len(shares) < self.terms.threshold:
            self.stage = "over"
            raise too_few(len(shares), self.terms.threshold, "shares of a site's secret")
        for chosen in islice(_choices(sorted(shares), self.terms.threshold), MAX_TRIES):
            secret = secret_sharing.join({one: shares[one] for one in chosen}, self.terms.threshold)
            if secret is not None and self._is_true(place, secret):
                self._note_wrong(place, shares, chosen)
                return secret
        self.stage = "over"
        name = self.terms.members[place].name
        raise refused(f"The revealed shares do not give the secret that {name!r} promised.")

    def _note_wrong(self, of: int, shares: Mapping[int, bytes], chosen: tuple[int, ...]) -> None:
        """Record the pairs of sites between which a revealed secret share was wrong.

        Either the site that revealed the share cheats, or the site that dealt it. Nobody can decide
        which of the two, so the code records both. `chosen` are the shares that gave the secret.
        """
        right = {one: shares[one] for one in chosen}
        for other in shares.keys() - set(chosen):
            if not secret_sharing.is_consistent_share(right, other, shares[other]):
                self._wrong.add((other - 1, of))

    def _is_true(self, place: int, secret: bytes) -> bool:
        if place in self._left:
            return commitment(secret, self.terms.digest) == self._promises[place]
        public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        return public == self._keys[place]

    def _unpair(self, gone: int, mask: X25519PrivateKey) -> None:
        """Remove from the sum the masks that the survivors shared with one site that dropped out.

        `mask` is that site's secret key, which its neighbours' shares recovered.
        """
        for place in self.terms.near[gone] & self._left:
            key = pair_key(mask, self._keys[place], self.terms, gone, place)
            (take_mask if place < gone else add_mask)(self._sum, key)

    def total(self) -> NDArray[np.int64]:
        """Return the result of the round: the sum of the integers of all surviving sites."""
        if not self._is_whole:
            raise Bug("the round has no sum")
        return to_signed(reduced(self._sum, self.terms.bits), self.terms.bits)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Return the names of the sites whose updates are in the sum."""
        return tuple(self.terms.members[place].name for place in sorted(self._left))

    @property
    def wrong_shares(self) -> tuple[tuple[str, str], ...]:
        """Return the wrong secret shares as pairs of site names (revealer, dealer).

        The sum is still right, because other shares recovered the secrets.
        """
        names = [member.name for member in self.terms.members]
        return tuple((names[shown], names[dealt]) for shown, dealt in sorted(self._wrong))

    _READ: Final = {
        "keys": _read_keys,
        "shares": _read_shares,
        "update": _read_update,
        "agreement": _read_agreement,
        "revealed": _read_revealed,
    }
    _NEXT: Final = {
        "keys": _announce,
        "shares": _deliver,
        "update": _ask_agreement,
        "agreement": _ask_reveal,
        "revealed": _finish,
    }


def _choices(places: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """Yield every subset of `count` shares once, in an order that soon leaves out each share.

    One wrong share gives a wrong secret, so the server tries subsets until one gives the right
    secret. In lexicographic order, an early wrong share would be in every subset that the server
    tries.
    """
    for left_out in range(len(places) - count + 1):
        *earlier, last = places[: count + left_out]
        for gone in combinations(earlier, left_out):
            yield (*(one for one in earlier if one not in gone), last)


def _by_place(field: bytes, kind: str, size: int) -> dict[int, bytes]:
    """Decode a field of fixed-size values, one for each place (index of a site in the cohort).

    Duplicate places and a wrong order are refused.
    """
    found = {}
    for item in decode_fields(field, kind):
        exactly(item, _PLACE + size, kind)
        found[int.from_bytes(item[:_PLACE], "little")] = item[_PLACE:]
    if [*found] != sorted(found) or len(found) != len(decode_fields(field, kind)):
        raise malformed(kind)
    return found


def _place(place: int) -> bytes:
    return place.to_bytes(_PLACE, "little")
