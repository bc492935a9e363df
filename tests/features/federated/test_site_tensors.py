"""Real sites: whose tensors are whose, what leaves through the door, and what breaks nothing."""

from __future__ import annotations

import base64
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make .venv/torch.done")

from sfumato.dp.refusal import Refused  # noqa: E402
from sfumato.features.federated import Site, VirtualWorker, tensor  # noqa: E402
from sfumato.features.federated.tensors.remote_tensor import remote  # noqa: E402
from sfumato.features.federated.tensors.site_store import SiteStore  # noqa: E402
from sfumato.features.federated.tensors.site_worker import Sessions  # noqa: E402
from sfumato.features.federated.tensors.tensor_messages import decode, encode  # noqa: E402
from support.tensor_workers import RealSite, make_plain_vault  # noqa: E402

MB = 1 << 20


def spent(site: Site) -> float:
    return float(site.vault.call("budget", {"data_set": "ages"})["spent"]["epsilon"])


def test_another_tokens_tensor_is_not_there(served_site: RealSite) -> None:
    make = served_site.fresh()
    ada, eve, ada_again = make("ada"), make("eve"), make("again")
    mine = tensor([1.0, 2.0]).send(ada)
    told = {"key": mine._ref.word(), "shape": (2,), "dtype": torch.float32, "needs_grad": False}
    for other in (eve, ada_again):  # of the same user too, with another token
        taken = remote(other, told)
        with pytest.raises(Refused, match="remote-unknown"):
            taken.get()
        assert other.objects_count() == 0
    assert mine.get().tolist() == [1, 2]


def test_what_a_site_owns_leaves_by_its_door_and_its_ledger(served_site: RealSite) -> None:
    site = served_site.fresh()("clinic")
    assert isinstance(site, Site)
    assert site.columns("ages") == ("age", "sons")
    ages, before = site.table("ages"), spent(site)
    means = ages.mean(0)
    with pytest.raises(Refused, match=r"remote-private.*release"):
        means.get()
    released = means.release(epsilon=20)
    assert released.shape == (2,)
    assert released.answer.guarantee == "central-dp"
    assert abs(float(released[0]) - 49.5) < 40  # the noise of two people at epsilon 20
    assert spent(site) == pytest.approx(before + 20)
    with pytest.raises(Refused, match="remote-private"):  # what was released is not given beside
        means.get()
    assert ages[:, 1].sum().release(epsilon=1).dim() == 0
    with pytest.raises(Refused, match="budget-exceeded"):
        ages.sum(0).release(epsilon=1000)


@pytest.mark.parametrize(
    "made",
    [
        lambda ages: ages,
        lambda ages: ages[0],
        lambda ages: ages[0:1].mean(0),
        lambda ages: ages.mean(1),
        lambda ages: ages.sum(),
        lambda ages: (ages * 2).mean(0),
        lambda ages: ages.mean(0) * 2,
        lambda ages: ages.mean(0).sum(),
        lambda ages: ages[:, 0][0:1].mean(),
    ],
    ids=["rows", "row", "some rows", "by row", "all", "scaled", "after", "twice", "some of one"],
)
def test_nothing_else_is_released(served_site: RealSite, made: Any) -> None:
    site = served_site.fresh()("clinic")
    assert isinstance(site, Site)
    before = spent(site)
    with pytest.raises(Refused, match=r"remote-private.*sums and means"):
        made(site.table("ages")).release(epsilon=1)
    assert spent(site) == before


def test_a_worker_in_this_process_has_no_door() -> None:
    clinic = VirtualWorker("clinic", tables={"ages": torch.ones(2, 2)})
    with pytest.raises(Refused, match=r"remote-private.*no privacy budget"):
        clinic.table("ages").mean(0).release(epsilon=1)


def test_what_is_sent_after_a_table_was_touched_comes_back(served_site: RealSite) -> None:
    site = served_site.fresh()("clinic")
    site.table("ages").sum()
    mine = tensor([3.0]).send(site)
    assert mine.clone().shape == (1,)
    assert mine.get().tolist() == [3]


def test_what_is_larger_than_a_request_travels_in_parts(served_site: RealSite) -> None:
    site = served_site.fresh()("bob")
    value = torch.arange(400_000, dtype=torch.float32)
    assert (tensor(value.tolist()).send(site).get() == value).all()


def test_a_message_that_is_sent_again_is_done_once(served_site: RealSite) -> None:
    site = served_site.fresh()("bob")
    assert isinstance(site, Site)
    x = tensor([1.0]).send(site)
    number = site._number + 1
    words = {"do": "call", "name": "add_", "args": (x._ref.word(), 1), "named": {}}
    message = base64.b64encode(encode(words)).decode()
    body = {"session": site._session, "number": number, "message": message}
    first, again = (site.vault.call("tensor-call", body) for _ in range(2))
    site._number = number
    assert first == again
    assert x.get().tolist() == [2]


def test_a_copy_that_comes_late_is_not_done_again() -> None:
    sessions = Sessions(SiteStore(MB), MB)
    key = heard(sessions, "a", 1, do="put", value=torch.zeros(1))["said"]["key"]
    add = {"do": "call", "name": "add_", "args": (key, 1.0), "named": {}}
    assert "said" in heard(sessions, "a", 2, **add)
    heard(sessions, "a", 3, do="list")
    assert heard(sessions, "a", 2, **add)["refused"][0] == "remote-refused"
    assert heard(sessions, "a", 4, do="get", key=key.key)["said"].item() == 1


def test_replies_to_all_sessions_are_kept_up_to_what_one_caller_may_hold() -> None:
    sessions = Sessions(SiteStore(MB), MB)
    key = heard(sessions, "a", 1, do="put", value=torch.zeros(1))["said"]["key"]
    asked = []
    for name in "bcdef":
        wide = heard(sessions, name, 1, do="call", name="expand", args=(key, 100_000), named={})
        asked.append((name, {"do": "get", "key": wide["said"]["key"].key}))
        assert len(heard(sessions, name, 2, **asked[-1][1])["said"]) == 100_000
    assert sum(len(reply or b"") for _, reply in sessions._last.values()) <= MB
    again = [heard(sessions, name, 2, **words) for name, words in asked]
    assert ["said" in one for one in again] == [False, False, False, True, True]
    assert again[0]["refused"][0] == "remote-refused"


def heard(sessions: Sessions, session: str, number: int, **words: Any) -> Any:
    header = {"session": session, "number": number, "more": False, "table": None}
    return decode(sessions.answer(header, encode(words)))


class Mark:
    """Writes a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (Path(self.path), "unpickled"))


def test_what_is_pickled_is_not_read(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    store = SiteStore(MB)
    torch.save({"x": torch.ones(1)}, tmp_path / "saved")
    for bad in (
        pickle.dumps(Mark(str(mark))),
        (tmp_path / "saved").read_bytes(),
        b"",
        b"\x80\x04.",
    ):
        said = decode(store.handle(bad))
        assert said["refused"][0] == "remote-refused"
    assert not mark.exists()


@pytest.fixture
def small() -> SiteStore:
    """Return what one caller may fill with a megabyte."""
    return SiteStore(MB)


def told(store: SiteStore, **words: Any) -> Any:
    return decode(store.handle(encode(words)))


def test_a_result_that_is_too_large_is_refused_before_it_is_made(small: SiteStore) -> None:
    key = told(small, do="put", value=torch.ones(1))["said"]["key"]
    wide = told(small, do="call", name="expand", args=(key, 1 << 40), named={})["said"]["key"]
    said = told(small, do="call", name="clone", args=(wide,), named={"memory_format": None})
    assert said["refused"][0] == "remote-refused"
    said = told(small, do="call", name="mul", args=(wide, 2), named={})
    assert "more than its owner allows" in said["refused"][1]
    assert told(small, do="put", value=torch.ones(MB))["refused"][0] == "remote-refused"
    assert len(told(small, do="list")["said"]) == 2


def test_what_is_no_message_ends_nothing(small: SiteStore) -> None:
    text = b'{"dict":{"do":"put","value":{"tensor":["float32",[0,%d],0,0,false]}}}' % (1 << 70)
    message = len(text).to_bytes(4, "little") + text
    assert decode(small.handle(message))["refused"][0] == "remote-refused"
    key = told(small, do="put", value=torch.ones(1))["said"]["key"]
    for wrong in ((key, 1 << 80), (key, None), (key, "x"), ("x", key), (key, -(1 << 70))):
        said = told(small, do="call", name="expand", args=wrong, named={})
        assert said["refused"][0] == "remote-refused"
    wide = told(small, do="call", name="expand", args=(key, 1 << 25), named={})["said"]["key"]
    assert "slices" in told(small, do="get", key=wide.key)["refused"][1]


def test_what_failed_with_values_leaves_nothing_behind(small: SiteStore) -> None:
    x = told(small, do="put", value=torch.ones(2, 2))["said"]["key"]
    classes = told(small, do="put", value=torch.tensor([7, 7]))["said"]["key"]
    said = told(small, do="call", name="cross_entropy", args=(x, classes), named={})
    assert "bounds" in said["refused"][1]  # one's own values are told of
    assert len(told(small, do="list")["said"]) == 2
    y = told(small, do="call", name="add", args=(x, 1), named={})["said"]["key"]
    assert told(small, do="get", key=y.key)["said"].tolist() == [[2, 2], [2, 2]]


def test_values_of_a_table_are_nowhere_in_the_store(small: SiteStore) -> None:
    small.declare("ages", 10**9, ("age", "sons"))
    made = told(small, do="call", name="sum", args=(ref("table:ages"), 0), named={})["said"]["key"]
    held = [*small._shapes._objects.values(), *small._shapes._tables.values()]
    assert all(one.device.type == "meta" for one in held)
    assert small._values._objects == {}
    assert told(small, do="get", key=made.key)["refused"][0] == "remote-private"


@pytest.mark.parametrize("way", ["itself", "a view", "a gradient"])
def test_what_was_written_to_is_no_mean_of_a_table_any_more(small: SiteStore, way: str) -> None:
    small.declare("ages", 9, ("age", "sons"))
    mean, other = (
        told(small, do="call", name="mean", args=(ref("table:ages"), 0), named={})["said"]["key"]
        for _ in range(2)
    )
    view = told(small, do="call", name="view", args=(mean, 2), named={})["said"]["key"]
    mine = told(small, do="put", value=torch.ones(2))["said"]["key"]
    assert told(small, do="source", key=mean.key)["said"]["how"] == "mean"
    if way == "a gradient":
        told(small, do="set grad", key=mine.key, to=mean)
    else:
        written = mean if way == "itself" else view
        assert "said" in told(small, do="call", name="zero_", args=(written,), named={})
    assert told(small, do="source", key=mean.key)["refused"][0] == "remote-private"
    assert told(small, do="source", key=other.key)["said"]["how"] == "mean"


def test_a_column_is_not_written_to_and_then_released(small: SiteStore) -> None:
    small.declare("ages", 9, ("age", "sons"))
    column = (ref("table:ages"), (slice(None), 0))
    age = told(small, do="call", name="__getitem__", args=column, named={})["said"]["key"]
    said = told(small, do="call", name="mul_", args=(age, 100.0), named={})
    assert "cannot be changed" in said["refused"][1]


def test_a_truth_is_no_place_of_a_column(small: SiteStore) -> None:
    small.declare("ages", 9, ("age", "sons"))
    where = (ref("table:ages"), (slice(None), True))
    odd = told(small, do="call", name="__getitem__", args=where, named={})
    if "said" in odd:
        total = told(small, do="call", name="sum", args=(odd["said"]["key"], 0), named={})
        key = total["said"]["key"].key
        assert told(small, do="source", key=key)["refused"][0] == "remote-private"


def ref(key: str) -> Any:
    from sfumato.features.federated.tensors.tensor_messages import Reference

    return Reference(key)


def test_a_process_that_was_killed_is_another_one_next(served_site: RealSite) -> None:
    site = served_site.fresh()("bob")
    assert isinstance(site, Site)
    x = tensor([1.0]).send(site)
    killed = _tensor_processes(served_site)
    assert killed
    for process in killed:
        os.kill(process, signal.SIGKILL)
    with pytest.raises(Refused, match=r"remote-(unknown|refused)"):
        x.get()
    assert tensor([5.0]).send(site).get().tolist() == [5]


def _tensor_processes(site: RealSite) -> list[int]:
    """Return the processes below the service that hold tensors."""
    found, look = [], [site.service.process.pid]
    while look:
        parent = look.pop()
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        for thread in Path(f"/proc/{parent}/task").iterdir():
            text += " " + (thread / "children").read_text()
        children = sorted(set(map(int, text.split())))
        look += children
        found += [c for c in children if b"site_worker" in Path(f"/proc/{c}/cmdline").read_bytes()]
    return sorted(set(found))


def test_a_process_for_tensors_has_no_environment_and_opens_no_file(served_site: RealSite) -> None:
    tensor([1.0]).send(served_site.fresh()("bob"))
    (process, *_) = _tensor_processes(served_site)
    assert Path(f"/proc/{process}/environ").read_bytes() == b""
    limits = Path(f"/proc/{process}/limits").read_text()
    assert [line.split()[3] for line in limits.splitlines() if "Max open files" in line] == ["0"]


def test_no_tensors_are_held_unless_it_is_a_site(tmp_path: Path) -> None:
    with make_plain_vault(tmp_path) as vault:
        body = {"session": "s", "number": 1, "message": ""}
        for verb, more in (("tensor-call", {}), ("tensor-table", {"data_set": "ages"})):
            with pytest.raises(Refused, match=r"remote-refused.*sfumato site"):
                vault.call(verb, {**body, **more})
