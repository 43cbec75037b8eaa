import re
from importlib.resources import files

import pytest

from regista.errors import StorageError
from regista.storage.redis.scripts import COMMON, NAMES, SHARED, source_of
from regista.testing.conformance.storage.kit import APPLIED, claim, commit, make_job, running, write
from tests.redis_server import RedisServer

from .conftest import Open

LUA = files("regista.storage.redis") / "lua"
FILES = sorted(
    folder + file.name.removesuffix(".lua")
    for folder in ("", "lib/")
    for file in (LUA / folder).iterdir()
    if file.is_file()
)


def test_every_lua_file_is_a_script_or_stands_in_front_of_one() -> None:
    shared = {name for each in SHARED.values() for name in each}
    assert sorted({*NAMES, "lib/now", *COMMON, *shared}) == FILES


@pytest.mark.parametrize("name", FILES)
def test_every_lua_file_opens_with_its_name_and_a_sentence(name: str) -> None:
    assert re.match(rf"-- {name.rpartition('/')[2]}: \S.{{20,}}\n", source_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_no_script_reads_the_clock_of_the_tests(name: str) -> None:
    assert "'clock'" not in source_of(name) + "".join(map(source_of, COMMON)) + source_of("lib/now")


@pytest.mark.parametrize("name", NAMES)
def test_every_script_has_what_it_calls_in_front_of_it(name: str) -> None:
    shared = dict.fromkeys([*COMMON, *(part for parts in SHARED.values() for part in parts)])
    missing = [part for part in shared if part not in (*COMMON, *SHARED.get(name, ()))]
    text = "".join(map(source_of, (*SHARED.get(name, ()), name)))
    for part in missing:
        for function in re.findall(r"^local function (\w+)|^local (\w+)$", source_of(part), re.MULTILINE):
            called = "".join(function)
            assert not re.search(rf"\b{called}\(", text) or f"function {called}(" in text, (part, called)


async def test_a_server_that_has_forgotten_the_scripts_gets_them_again(
    open_store: Open, server: RedisServer
) -> None:
    async with running(open_store()) as store:
        assert await commit(store, write(make_job("a"))) == [APPLIED]
        server.ask("SCRIPT", "FLUSH")
        changes = [write(make_job(f"b{n:03}")) for n in range(200)]
        assert await commit(store, *changes) == [APPLIED] * 200
        server.ask("SCRIPT", "FLUSH")
        assert len(await claim(store)) == 201


async def test_a_script_that_fails_says_which_one_it_was(open_store: Open, server: RedisServer) -> None:
    async with running(open_store()) as store:
        await store._ask(("SET", f"{store._prefix}beats", "not a sorted set"))
        with pytest.raises(StorageError, match=r"refused 'lapsed'.*WRONGTYPE"):
            await store.workers(lapsed_only=True)
