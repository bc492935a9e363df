"""The client side of secure aggregation: one site in one round, as a state machine over bytes.

The protocol is that of Bonawitz et al. (2017) against a malicious server. Every message is signed.
The sites agree on the list of survivors before they reveal anything. For each site, the others
reveal either the shares of its self mask or those of its pairwise masks, never both. Each stage
runs once, in order. A site that refuses a message leaves the round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation import secret_sharing
from sfumato.dp.secure_aggregation.masks import (
    KEY_BYTES,
    Words,
    add_mask,
    agreed_key,
    commitment,
    from_signed,
    own_key,
    reduced,
    take_mask,
)
from sfumato.dp.secure_aggregation.message_encoding import (
    decode_fields,
    encode_fields,
    exactly,
    malformed,
    refused,
)
from sfumato.dp.secure_aggregation.round_terms import (
    Terms,
    Trust,
    accepted,
    decoded,
    not_trusted,
    opened,
    signed,
)

# two shares and the authentication tag of the cipher
SEALED_BYTES: Final = 2 * secret_sharing.SHARE_BYTES + 16
HASH_BYTES: Final = 32
_PLACE: Final = 8
_KEPT_BYTES: Final = ("_mask_secret", "_seed", "_heard", "_agreed")
_KEPT_PLACES: Final = ("_sharers", "_left")
_KEPT_FIELDS: Final = len(_KEPT_BYTES) + len(_KEPT_PLACES) + 2


class Participant:
    """One site in one round of secure aggregation: it masks its integers for the server.

    The object deletes its secrets when the round ends.
    """

    def __init__(
        self,
        name: str,
        identity: Ed25519PrivateKey,
        trust: Trust,
        dice: RandomSource,
        used: set[bytes],
    ) -> None:
        """Create the state of one site for one round.

        `identity` signs the site's messages, and `trust` has the terms that it requires. `used`
        holds the nonces of all rounds that the site ever joined.
        """
        self.name = name
        self._identity = identity
        self._trust = trust
        self._dice = dice
        self._used = used
        self._stage = "invited"

    def serialise(self) -> bytes:
        """Serialise the site's state, with its secrets, for a process that ends between two stages.

        The caller must use the state at most once. Running a stage twice from one state could
        reveal both secrets of a neighbour.
        """
        held = self.__dict__
        fields = [
            self._stage.encode(),
            self.terms.encoded() if "terms" in held else b"",
            self._channel.private_bytes_raw() if "_channel" in held else b"",
            *(held.get(name, b"") for name in _KEPT_BYTES),
            *(_placed(held.get(name, ())) for name in _KEPT_PLACES),
            _placed(held.get("_keys", {})),
            _placed(held.get("_held", {})),
        ]
        return encode_fields("kept", *fields)

    def resume(self, kept: bytes) -> None:
        """Restore the state that `serialise` returned, so that the site continues the round."""
        stage, terms, channel, *rest = decode_fields(kept, "kept", 3 + _KEPT_FIELDS)
        if self._stage != "invited" or not terms:
            raise refused("The site cannot resume the round at its current stage.")
        self.terms = decoded(terms)
        place = self.terms.place_of(self.name)
        if place is None:
            raise not_trusted("this site is not in the cohort")
        self._place = place
        if channel:
            self._channel = X25519PrivateKey.from_private_bytes(channel)
        for name, field in zip((*_KEPT_BYTES, *_KEPT_PLACES), rest, strict=False):
            self.__dict__[name] = field if name in _KEPT_BYTES else frozenset(_by_place(field))
        self._keys = {at: (x[:KEY_BYTES], x[KEY_BYTES:]) for at, x in _by_place(rest[-2]).items()}
        cut = secret_sharing.SHARE_BYTES
        held = {at: (x[:cut], x[cut:]) for at, x in _by_place(rest[-1]).items()}
        self._held: dict[int, tuple[bytes, bytes]] = held
        if self._mask_secret:
            self._mask = X25519PrivateKey.from_private_bytes(self._mask_secret)
        self._stage = stage.decode()

    def join(self, invitation: bytes) -> bytes:
        """Join a round: check its terms, and return this site's signed public keys.

        `invitation` has the terms, signed by the convener.
        """
        with self._step("invited", "joined"):
            self.terms = accepted(invitation, self._trust)
            place = self.terms.place_of(self.name)
            if place is None or self._public() != self.terms.members[place].identity:
                raise not_trusted("this site is not in the cohort")
            if self.terms.nonce in self._used:
                raise not_trusted("this site already took part in a round with this nonce")
            self._used.add(self.terms.nonce)
            self._place = place
            self._channel = X25519PrivateKey.from_private_bytes(self._dice.draw(KEY_BYTES))
            self._mask_secret = self._dice.draw(KEY_BYTES)
            self._mask = X25519PrivateKey.from_private_bytes(self._mask_secret)
            keys = (key.public_key().public_bytes_raw() for key in (self._channel, self._mask))
            return self._signed("keys", *keys)

    def share(self, announced: bytes) -> bytes:
        """Split this site's two secrets into shares; return them encrypted for each neighbour.

        `announced` has the public keys of all sites.
        """
        with self._step("joined", "shared"):
            self._keys = keys_in(announced, self.terms)
            self._check_left(frozenset(self._keys))
            near = sorted(self._near & self._keys.keys())
            if self._place not in self._keys or len(near) < self.terms.threshold:
                raise too_few(len(near), self.terms.threshold, "neighbours")
            self._seed = self._dice.draw(KEY_BYTES)
            sealed = self._sealed_for(near)
            promise = commitment(self._seed, self.terms.digest)
            return self._signed("shares", promise, encode_fields("sealed", *sealed))

    def _sealed_for(self, near: list[int]) -> Iterator[bytes]:
        places = [place + 1 for place in near]
        halves = [
            secret_sharing.split(secret, self.terms.threshold, places, self._dice)
            for secret in (self._seed, self._mask_secret)
        ]
        for place in near:
            both = b"".join(half[place + 1] for half in halves)
            lock = ChaCha20Poly1305(self._channel_key(place, self._place, place))
            # each key encrypts one message only, so the nonce may be zero
            sealed = lock.encrypt(bytes(12), both, self.terms.digest)
            yield place.to_bytes(_PLACE, "little") + sealed

    def mask(self, delivery: bytes, values: NDArray[np.int64]) -> bytes:
        """Check the delivered secret shares, then return this site's masked integers, signed."""
        self.receive_shares(delivery)
        return self.masked(values)

    def receive_shares(self, delivery: bytes) -> None:
        """Check and store the neighbours' secret shares, before this site has its data."""
        with self._step("shared", "heard"):
            self._take_shares(delivery)

    def masked(self, values: NDArray[np.int64]) -> bytes:
        """Add the masks to this site's integers; return the signed message for the server.

        The masked words look uniformly random.
        """
        with self._step("heard", "masked"):
            words = from_signed(self._checked(values), self.terms.bits)
            add_mask(words, own_key(self._seed, self.terms.digest))
            for other in sorted(self._near & self._sharers):
                key = pair_key(self._mask, self._keys[other][1], self.terms, self._place, other)
                (add_mask if self._place < other else take_mask)(words, key)
            masked = words_bytes(reduced(words, self.terms.bits))
            return encode_fields(
                "masked", self._signed("update", self._heard, _hash(masked)), masked
            )

    def _take_shares(self, delivery: bytes) -> None:
        """Check and store the neighbours' secret shares, and the list of sites that dealt any."""
        sharers, mine = decode_fields(delivery, "delivery", 2)
        self._sharers = _places(sharers, self.terms)
        self._heard = _hash(sharers)
        self._check_left(self._sharers)
        if not self._sharers <= self._keys.keys() or self._place not in self._sharers:
            raise refused("The list of sharers does not match the keys.")
        self._held = {}
        for item in decode_fields(mine, "mine"):
            self._keep(int.from_bytes(item[:_PLACE], "little"), item[_PLACE:])
        near = self._near & self._sharers
        if self._held.keys() != near or len(near) < self.terms.threshold:
            raise refused("Shares of neighbours are missing.")

    def _keep(self, place: int, sealed: bytes) -> None:
        if place not in self._near or place not in self._keys:
            raise refused("Shares came from a site that is no neighbour.")
        lock = ChaCha20Poly1305(self._channel_key(place, place, self._place))
        try:
            both = lock.decrypt(bytes(12), exactly(sealed, SEALED_BYTES, "mine"), self.terms.digest)
        except InvalidTag as wrong:
            name = self.terms.members[place].name
            raise refused(f"The site cannot read the shares that {name!r} sent to it.") from wrong
        self._held[place] = (both[: secret_sharing.SHARE_BYTES], both[secret_sharing.SHARE_BYTES :])

    def _checked(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        if values.dtype != np.int64 or values.shape != (self.terms.size,):
            raise bad_update("It does not have the shape or number type that the round needs.")
        # so that the sum over all sites stays below half of 2**bits
        most = ((1 << (self.terms.bits - 1)) - 1) // len(self.terms.members)
        if values.min() < -most or values.max() > most:
            raise bad_update("It has a number that is too large for the round's width.")
        return values

    def agree(self, survivors: bytes) -> bytes:
        """Check and sign the list of surviving sites; a site signs only one list per round."""
        with self._step("masked", "agreed"):
            self._left = survivors_in(survivors, self.terms, self._heard)
            self._check_left(self._left)
            if self._place not in self._left or not self._left <= self._sharers:
                raise refused("The list of survivors does not match the list of sharers.")
            self._agreed = _hash(survivors)
            return self._signed("agreement", self._heard, self._agreed)

    def reveal(self, agreements: bytes) -> bytes:
        """Reveal one secret share of each neighbour, so that the server can remove its masks.

        For a survivor it is a share of the self mask, otherwise of the pairwise masks. The sites
        must agree on the survivors.
        """
        with self._step("agreed", "over"):
            agreed = set()
            for message in decode_fields(agreements, "agreements"):
                place, said = opened(message, "agreement", self.terms, 2)
                if said != [self._heard, self._agreed]:
                    raise refused("The sites agreed on another list of survivors.")
                agreed.add(place)
            self._check_floor(len(agreed & self._left))
            shares = [
                place.to_bytes(_PLACE, "little") + self._held[place][place not in self._left]
                for place in sorted(self._held)
            ]
            return self._signed("revealed", encode_fields("unsealed", *shares))

    @cached_property
    def _near(self) -> frozenset[int]:
        return self.terms.near_of(self._place)

    def _check_left(self, left: frozenset[int]) -> None:
        """Refuse to go on if too few sites are left, or if colluders could split the sum in two.

        `left` has the indices of the sites left. The check runs at each stage, so that a round that
        cannot finish is refused before it is charged.
        """
        self._check_floor(len(left))
        if not self.terms.holds_together(left):
            raise parted(len(left), self.terms.colluders)

    def _check_floor(self, count: int) -> None:
        if count < self.terms.floor:
            raise too_few(count, self.terms.floor, "sites")

    def _channel_key(self, other: int, sender: int, receiver: int) -> bytes:
        use = b"channel" + sender.to_bytes(_PLACE, "little") + receiver.to_bytes(_PLACE, "little")
        return agreed_key(self._channel, self._keys[other][0], self.terms.digest, use)

    def _signed(self, kind: str, *said: bytes) -> bytes:
        return signed(kind, self._identity, self._place, self.terms.digest, *said)

    def _public(self) -> bytes:
        return self._identity.public_key().public_bytes_raw()

    @contextmanager
    def _step(self, now: str, then: str) -> Iterator[None]:
        """Run one stage of the round, if the site is at stage `now`; then advance to stage `then`.

        On any error in the stage, the round is over for this site, and its secrets are deleted.
        """
        if self._stage != now:
            raise refused(f"The site is at another stage of the round: {self._stage!r}.")
        self._stage = "over"
        try:
            yield
            self._stage = then
        finally:
            if self._stage == "over":
                self._forget()

    def _forget(self) -> None:
        for secret in ("_seed", "_mask_secret", "_mask", "_channel", "_held"):
            self.__dict__.pop(secret, None)


def keys_in(announced: bytes, terms: Terms) -> dict[int, tuple[bytes, bytes]]:
    """Decode the server's list of public keys: for each site, its channel key and its mask key.

    The channel key encrypts messages between two sites. The mask key gives the masks that they
    share.
    """
    found: dict[int, tuple[bytes, bytes]] = {}
    for message in decode_fields(announced, "announced"):
        place, said = opened(message, "keys", terms, 2)
        channel, mask = (exactly(key, KEY_BYTES, "keys") for key in said)
        if place in found:
            raise refused("A site announced its keys twice.")
        found[place] = channel, mask
    return found


def survivors_in(survivors: bytes, terms: Terms, heard: bytes) -> frozenset[int]:
    """Return the indices of the surviving sites, those that sent an update, from the server's list.

    The list is refused if the sites saw different lists of sharers (sites that dealt secret
    shares).
    """
    found = set()
    for message in decode_fields(survivors, "survivors"):
        place, (theirs, _) = opened(message, "update", terms, 2)
        if theirs != heard or place in found:
            raise refused("The sites were told of different sharers.")
        found.add(place)
    return frozenset(found)


def pair_key(own: X25519PrivateKey, other: bytes, terms: Terms, one: int, two: int) -> bytes:
    """Derive the key of the pairwise mask that two sites, `one` and `two`, share.

    Each of the sites derives it from its own secret key and the public key of the other.
    """
    ends = b"".join(place.to_bytes(_PLACE, "little") for place in sorted((one, two)))
    return agreed_key(own, other, terms.digest, b"mask" + ends)


def words_bytes(words: Words) -> bytes:
    """Encode masked words as the bytes of a message."""
    return words.tobytes()


def too_few(count: int, floor: int, what: str) -> Refused:
    """Build the refusal of a round that has lost too many sites."""
    return Refused(
        "sum-too-few",
        f"{count} {what} are left, and the round needs {floor}.",
        "There is no sum, not even of the remaining sites. Convene another round.",
    )


def parted(count: int, colluders: int) -> Refused:
    """Build the refusal of a round in which colluders could split the sites' sum in two.

    The server would then learn the sum of each part of the sites.
    """
    return Refused(
        "sum-too-few",
        f"{count} sites are left, but too many neighbours are missing. The server and "
        f"{colluders} colluding sites could split their sum in two.",
        "There is no sum. Convene another round, or let the sites agree on more neighbours.",
    )


def bad_update(fault: str) -> Refused:
    """Build the refusal by which a site rejects its own update before sending it."""
    return Refused(
        "update-refused",
        f"The update cannot be added to a sum: {fault}",
        "Nothing was sent. Send finite numbers of the shape and size that the round's terms name.",
    )


def _places(field: bytes, terms: Terms) -> frozenset[int]:
    places = [int.from_bytes(item, "little") for item in decode_fields(field, "sharers")]
    if sorted(set(places)) != places or any(place >= len(terms.members) for place in places):
        raise malformed("sharers")
    return frozenset(places)


def _placed(found: Iterable[int]) -> bytes:
    """Encode a set of sites as one message field, by their places (indices in the cohort).

    If `found` is a mapping, the field also has the byte values of each place.
    """
    known = found if isinstance(found, Mapping) else {}
    return encode_fields(
        "placed",
        *(p.to_bytes(_PLACE, "little") + b"".join(known.get(p, ())) for p in sorted(found)),
    )


def _by_place(field: bytes) -> dict[int, bytes]:
    items = decode_fields(field, "placed")
    return {int.from_bytes(item[:_PLACE], "little"): item[_PLACE:] for item in items}


def _hash(said: bytes) -> bytes:
    return sha256(said).digest()
