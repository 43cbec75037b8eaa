"""A pathway takes what aiohttp's own resource of the same path takes, and understands it alike."""

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from regista import Config, OrchestratorEngine
from regista.api.pathway import Pathway, is_pathway

PARTS = ["", "a", "b", "jobs", "jobs:wait", "{x}", "{y}", "ü", "a%2Fb", "a%25b", "a%252Fb", "a b", "{", "}"]


def both(path: str, prefix: str = "") -> tuple[Pathway, web.DynamicResource]:
    ours, theirs = Pathway(path), web.DynamicResource(path)
    for one in ("/inner", prefix) if prefix else ():
        ours.add_prefix(one)
        theirs.add_prefix(one)
    return ours, theirs


@pytest.mark.parametrize("prefix", ["", "/mounted/here", "/{odd}"])
@given(
    path=st.lists(st.sampled_from(["a", "b", "{x}", "{y}", ""]), min_size=1, max_size=4),
    asked=st.lists(st.sampled_from(PARTS) | st.text("ab%2F{}\n", max_size=3), max_size=6),
    fills=st.booleans(),
)
def test_it_takes_what_aiohttp_takes(path: list[str], asked: list[str], fills: bool, prefix: str) -> None:
    whole = "/" + "/".join(path)
    if not is_pathway(whole):
        return
    ours, theirs = both(whole, prefix)
    # Given a path of any length, or one that has this length
    parts = [*asked, *("x" for _ in path)][: len(path)] if fills else asked
    wanted = (prefix and prefix + "/inner") + "/" + "/".join(parts)

    assert ours._match(wanted) == theirs._match(wanted)
    assert ours.canonical == theirs.canonical
    assert ours.raw_match(whole)
    assert not ours.raw_match(wanted + "/more")


def test_every_path_of_the_api_is_told_and_filled_in_as_by_aiohttp() -> None:
    config = Config(instance_id="x", client_token="t", worker_token="w")
    router = OrchestratorEngine("memory", config).app.router
    ours = [one for one in router.resources() if isinstance(one, Pathway)]

    assert len(ours) > 50
    for one in ours:
        theirs = web.DynamicResource(one.canonical)
        names = {name: f"{name} of/100%ü" for _, name in one._names}
        assert one.canonical == theirs.canonical
        assert one.get_info()["formatter"] == theirs.get_info()["formatter"]
        assert one.url_for(**names) == theirs.url_for(**names)


@pytest.mark.parametrize(
    "path", ["/a", "/a/{x}-{y}", "/a/{x:[^/]+}", "/{x}/{x}", "/a b/{x}", "/ü/{x}", "/{1}"]
)
def test_other_paths_are_left_to_aiohttp(path: str) -> None:
    assert not is_pathway(path)
