"""A server and a site together go for one site's numbers, by every list that they can send about.

What they gather is put together as an attacker would: with both of its secrets a site's masks
come off. So of the two no more than one is ever to be had, whatever was told to whom.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from itertools import combinations, product

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation import secret_sharing
from sfumato.dp.secure_aggregation.masks import (
    add_mask,
    commitment,
    own_key,
    reduced,
    take_mask,
    to_signed,
    word_type,
)
from sfumato.dp.secure_aggregation.message_encoding import decode_fields, encode_fields
from sfumato.dp.secure_aggregation.participant import keys_in, pair_key
from sfumato.dp.secure_aggregation.round_terms import signed
from support.secure_aggregation_rounds import Integers, Round, key_of, shares_in

VICTIM, LIAR = 0, 5
HONEST = ("s01", "s02", "s03", "s04")
EVERYONE = range(6)


def agreeing() -> Round:
    """Six sites that have sent their numbers; four must stay, and one may lie.

    So few must stay that two honest shares and the liar's are enough: half of the honest could
    give the one secret, and half the other, if they gave it for words on two lists.
    """
    return Round(sites=6, floor=4, colluders=1).up_to("agree")


def claims(round_: Round, places: Iterable[int]) -> bytes:
    """A list of survivors, made of what these sites have signed."""
    sent = {
        name: decode_fields(said, "masked", 2)[0] for name, s, said in round_.sent if s == "mask"
    }
    return encode_fields("survivors", *(sent[round_.names[place]] for place in places))


def words_of_liar(round_: Round, told: bytes) -> bytes:
    """The liar signs whatever list there is."""
    heard = round_.sites["s01"]._heard
    digest = round_.terms.digest
    return signed("agreement", key_of("s05"), LIAR, digest, heard, sha256(told).digest())


def gathered(round_: Round, lists: dict[str, bytes], *, of_all: bool) -> list[dict[int, bytes]]:
    """Play the end of the round with these lists; return shares of the victim's two secrets.

    Of each site the server asks for its word on the list that it was told of, then for its shares
    with the words on that very list, or with those on either, and then once more for the other.
    """
    said: dict[str, tuple[bytes, bytes]] = {}
    for name, told in lists.items():
        with suppress(Refused):
            said[name] = told, round_.sites[name].agree(told)
    shares: set[tuple[int, bytes]] = set()
    for name, (told, _) in said.items():
        for of in (told, *(one for one in lists.values() if one != told)):
            words = [word for heard, word in said.values() if of_all or heard == of]
            with suppress(Refused):
                revealed = round_.sites[name].reveal(
                    encode_fields("agreements", *words, words_of_liar(round_, of))
                )
                if name != "s00":  # which has no share of its own
                    shares.add((int(name[1:]) + 1, shares_in(revealed)[VICTIM]))
    liars = round_.sites["s05"]._held[VICTIM]
    return [{**dict(shares), LIAR + 1: liars[which]} for which in (0, 1)]


def secret(round_: Round, shares: dict[int, bytes], *, is_seed: bool) -> bytes | None:
    """The victim's seed or its mask key, if any of the shares give it."""
    for chosen in combinations(sorted(shares), round_.terms.threshold):
        found = secret_sharing.join({one: shares[one] for one in chosen}, round_.terms.threshold)
        if found is not None and _is_true(round_, found, is_seed=is_seed):
            return found
    return None


def _is_true(round_: Round, found: bytes, *, is_seed: bool) -> bool:
    if is_seed:
        return commitment(found, round_.terms.digest) == round_.collector._promises[VICTIM]
    public = X25519PrivateKey.from_private_bytes(found).public_key().public_bytes_raw()
    return public == round_.collector._keys[VICTIM]


def unmasked(round_: Round, seed: bytes, mask: bytes) -> Integers:
    """The victim's numbers, by whoever has both secrets."""
    (masked,) = (
        decode_fields(said, "masked", 2)[1]
        for n, s, said in round_.sent
        if (n, s) == ("s00", "mask")
    )
    words = np.frombuffer(masked, dtype=word_type(round_.terms.bits)).copy()
    take_mask(words, own_key(seed, round_.terms.digest))
    announced = encode_fields("announced", *(said for _, s, said in round_.sent if s == "join"))
    keys, own = keys_in(announced, round_.terms), X25519PrivateKey.from_private_bytes(mask)
    for other in round_.terms.near[VICTIM]:
        key = pair_key(own, keys[other][1], round_.terms, VICTIM, other)
        (take_mask if other > VICTIM else add_mask)(words, key)
    return to_signed(reduced(words, round_.terms.bits), round_.terms.bits)


def test_whoever_has_both_secrets_has_the_numbers() -> None:
    """That the attack is one: with what only the site itself knows it succeeds."""
    round_ = agreeing()
    own = round_.sites["s00"]
    assert (unmasked(round_, own._seed, own._mask_secret) == round_.values["s00"]).all()


def test_no_lists_of_survivors_give_both_secrets_of_a_site() -> None:
    """So many of the honest are told that the victim is there, the others that it has gone."""
    found: set[tuple[bool, bool]] = set()
    for many, of_all in product(range(len(HONEST) + 1), (True, False)):
        told = [place < many for place in range(len(HONEST))]
        round_ = agreeing()
        lists = {
            name: claims(round_, EVERYONE if is_there else EVERYONE[1:])
            for name, is_there in zip(("s00", *HONEST), (True, *told), strict=True)
        }
        seeds, masks = gathered(round_, lists, of_all=of_all)
        seed = secret(round_, seeds, is_seed=True)
        mask = secret(round_, masks, is_seed=False)
        found.add((seed is not None, mask is not None))
    assert found == {(False, False), (True, False), (False, True)}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_site_that_has_revealed_is_not_asked_again(is_there: bool) -> None:
    """For a survivor's seed first, and then for the mask key of the one that is said to be gone."""
    round_ = agreeing()
    first, second = (
        claims(round_, EVERYONE if way else EVERYONE[1:]) for way in (is_there, not is_there)
    )
    words = [round_.sites[name].agree(first) for name in HONEST]
    packed = encode_fields("agreements", *words, words_of_liar(round_, first))
    assert shares_in(round_.sites["s01"].reveal(packed))[VICTIM]
    for again in (packed, encode_fields("agreements", words_of_liar(round_, second))):
        with pytest.raises(Refused, match="stage"):
            round_.sites["s01"].reveal(again)
    with pytest.raises(Refused, match="stage"):
        round_.sites["s01"].agree(second)
