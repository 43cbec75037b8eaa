"""Webhooks at a running server: told and signed on every store, answered by link, visible when given up."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import ResolveResult

from regista import Client, Config, Connection, OrchestratorEngine, StateMachineBlueprint
from regista.model import RecordWrite
from regista.model.delivery import DEAD_COLLECTION, WEBHOOK_COLLECTION, delivery_write
from regista.storage.base import StorageBackend
from regista.webhooks import verify
from regista.webhooks.addresses import AddressPolicy
from regista.webhooks.client import WebhookClient
from regista.webhooks.resolver import CheckedResolver
from tests.acceptance.any_store import redis_server, storage
from tests.acceptance.processes import House as Processes
from tests.acceptance.serving import House, serving
from tests.acceptance.test_jobs import asks
from tests.redis_server import RedisServer
from tests.support import script
from tests.webhook_kit import Receiver, delivery, in_loop, receiving

__all__ = ["redis_server", "storage"]

HERE = ("127.0.0.0/8",)


def quick() -> StateMachineBlueprint:
    return script(lambda context, actions: actions.transition_to("done"), "done", name="quick")


@asynccontextmanager
async def house(
    storage: StorageBackend | str = "memory", **settings: Any
) -> AsyncIterator[tuple[House, Receiver]]:
    settings = {"webhook_allow_private": HERE} | settings
    async with receiving() as receiver, serving(quick(), asks(), storage=storage, **settings) as served:
        yield served, receiver


def gone(receiver: Receiver) -> None:
    """Answers that nobody listens here any more."""

    async def reply(number: int) -> web.StreamResponse:
        return web.Response(status=410)

    receiver.reply = reply


def listens(receiver: Receiver) -> None:
    async def reply(number: int) -> web.StreamResponse:
        return web.Response(status=200)

    receiver.reply = reply


async def dead(house: House, number: int = 1, token: str = "t-ada") -> list[Any]:
    """The dead letters, as soon as there are so many."""
    async with asyncio.timeout(8):
        while True:
            items: list[Any] = (await house.get("/api/v1/webhooks", token=token)).json["items"]
            if len(items) >= number:
                return items
            await asyncio.sleep(0.02)


def test_the_end_of_a_job_is_told_signed_with_its_clients_secret(storage: str) -> None:
    @in_loop
    async def main() -> None:
        async with house(storage) as (served, receiver):
            job = await served.submit("quick", {"n": 1}, webhook_url=receiver.url)
            (heard,) = await receiver.count(1)
            known = (await served.get("/api/v1/webhooks/secret")).json
            assert known["derived"] is True
            assert verify(known["secrets"][0], heard.headers, heard.raw) == heard.body["id"]
            assert (heard.body["event"], heard.body["job_id"]) == ("job_finished", job["id"])
            other = (await served.get("/api/v1/webhooks/secret", token="t-bob")).json
            assert other["secrets"] != known["secrets"]
            await served.director.webhooks.drain()  # what was heard is gone
            assert (await served.get("/api/v1/webhooks?state=pending")).json["items"] == []

    main()


def test_a_question_is_answered_by_the_link_that_it_brought_along(storage: str) -> None:
    @in_loop
    async def main() -> None:
        async with house(storage, public_url="http://public.example.com") as (served, receiver):
            job = await served.submit("asks", webhook_url=receiver.url)
            (heard,) = await receiver.count(1)
            question = heard.body["approval"]
            path = question["url"].removeprefix("http://public.example.com")
            answer = await served.post(path, {"decision": "yes"}, token=None)
            assert answer.json == {"status": "approval_received", "job_id": job["id"]}
            heard = (await receiver.count(2))[1]
            assert heard.body["event"] == "job_finished"
            events = (await served.get(f"/api/v1/jobs/{job['id']}/history")).json["items"]
            (given,) = [event for event in events if event["type"] == "approval_given"]
            assert given["actor"] == "approval_link"

    main()


def test_a_dead_letter_is_seen_sent_again_and_discarded_by_its_owner_alone(storage: str) -> None:
    @in_loop
    async def main() -> None:
        async with house(storage) as (served, receiver):
            gone(receiver)
            first = await served.submit("quick", webhook_url=receiver.url)
            await served.submit("quick", webhook_url=receiver.url)
            items = await dead(served, 2)
            one, two = items
            assert (one["job_id"], one["last_status"], one["tries"]) == (first["id"], 410, 1)
            assert one["state"] == "dead"
            path = f"/api/v1/webhooks/{one['id']}"
            assert (await served.get("/api/v1/webhooks", token="t-bob")).json["items"] == []
            assert len((await served.get("/api/v1/webhooks", token="t-ops")).json["items"]) == 2
            for way in ("", "/redeliver", "/discard"):
                refused = await served.call("POST" if way else "GET", path + way, token="t-bob")
                assert (refused.status, refused.code) == (404, "delivery_not_found")

            listens(receiver)
            again = await served.post(path + "/redeliver", {})
            assert (again.status, again.json["state"], again.json["tries"]) == (200, "pending", 0)
            heard = (await receiver.count(3))[2]
            assert heard.headers["webhook-id"] == one["id"]
            assert (await served.post(f"/api/v1/webhooks/{two['id']}/discard")).status == 200
            assert (await served.get("/api/v1/webhooks")).json["items"] == []
            assert (await served.post(f"/api/v1/webhooks/{two['id']}/discard")).status == 404

            records = (await served.get("/api/v1/audit", token="t-ops")).json["items"]
            assert [(one["actor"], one["action"], one["target"]) for one in records] == [
                ("client:ada", "webhook.discard", two["id"]),
                ("client:ada", "webhook.redeliver", one["id"]),
            ]

    main()


def test_a_list_of_dead_letters_has_pages() -> None:
    @in_loop
    async def main() -> None:
        async with house() as (served, receiver):
            gone(receiver)
            for _ in range(5):
                await served.submit("quick", webhook_url=receiver.url)
            await dead(served, 5)
            seen, path = [], "/api/v1/webhooks?limit=2"
            pages = 0
            while path:
                page = (await served.get(path)).json
                seen += [item["id"] for item in page["items"]]
                pages += 1
                path = f"/api/v1/webhooks?limit=2&next={page['next']}" if page["next"] else ""
            assert (len(seen), len(set(seen)), pages) == (5, 5, 3)
            assert seen == sorted(seen)

    main()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://169.254.169.254/latest", "http://[::1]/"])
def test_a_url_of_our_own_network_is_refused_when_the_job_is_submitted(url: str) -> None:
    @in_loop
    async def main() -> None:
        async with house(webhook_allow_private=()) as (served, _):
            refused = await served.post("/api/v1/jobs", {"blueprint": "quick", "webhook_url": url})
            assert (refused.status, refused.code) == (400, "webhook_refused")
            batch = {"jobs": [{"blueprint": "quick", "webhook_url": url}, {"blueprint": "quick"}]}
            bad, good = (await served.post("/api/v1/jobs:batch", batch)).json["items"]
            assert bad["code"] == "webhook_refused"
            assert good["blueprint"] == "quick"

    main()


class Ours(CheckedResolver):
    """A name server that says: it is you."""

    async def look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)
        ]


def test_a_name_of_our_own_network_is_refused_when_it_is_told() -> None:
    """The name is looked up only then; whoever submits learns of it from the dead letter."""

    @in_loop
    async def main() -> None:
        async with house(webhook_allow_private=()) as (served, receiver):
            served.director.webhooks.transport = WebhookClient(AddressPolicy(), 1.0, Ours(AddressPolicy()))
            await served.submit("quick", webhook_url=f"http://hooks.example.com:{receiver.port}/")
            (item,) = await dead(served)
            assert "not a public address" in item["last_error"]
            assert receiver.heard == []

    main()


CLIENTS = """
[ada]
token = "t-ada"
webhook_url = "{url}"
webhook_secret = ["{new}", "{old}"]
webhook_events = ["finished"]

[ops]
token = "t-ops"
operator = true
"""
OLD, NEW = "whsec_" + "A" * 32, "whsec_" + "B" * 44


def test_a_clients_own_webhook_hears_of_every_job_of_it_and_of_nothing_else(tmp_path: Path) -> None:
    @in_loop
    async def main() -> None:
        async with receiving() as receiver:
            file = tmp_path / "clients.toml"
            file.write_text(CLIENTS.format(url=receiver.url, new=NEW, old=OLD))
            config = Config(
                instance_id="one",
                worker_token="t-w",
                clients_config_path=str(file),
                webhook_allow_private=HERE,
            )
            director = OrchestratorEngine("memory", config)
            director.register_blueprint(quick())
            director.register_blueprint(asks())
            site = await director.serve(port=0)
            try:
                await director.submit("quick", client="ops")
                await director.submit("asks", client="ada")
                job = await director.submit("quick", client="ada")
                (heard,) = await receiver.count(1)
                assert heard.body["job_id"] == job.id
                for secret in (OLD, NEW):
                    verify(secret, heard.headers, heard.raw)
                # Read anew: it listens nowhere any more.
                file.write_text('[ada]\ntoken = "t-ada"\n')
                assert director.reload()
                await director.submit("quick", client="ada")
                await asyncio.sleep(0.1)
                assert len(receiver.heard) == 1
            finally:
                await director.stop(0.0)
            assert site.port

    main()


def test_two_orchestrators_on_one_redis_tell_everything_and_nothing_twice(
    redis_server: RedisServer,
) -> None:
    @in_loop
    async def main() -> None:
        assert redis_server.ask("FLUSHALL") == "+OK"
        async with receiving() as receiver:
            directors = []
            for name in ("one", "two"):
                config = Config(instance_id=name, webhook_allow_private=HERE)
                director = OrchestratorEngine(redis_server.url, config)
                director.register_blueprint(quick())
                await director.start()
                directors.append(director)
            try:
                jobs = [await directors[n % 2].submit("quick", webhook_url=receiver.url) for n in range(40)]
                heard = await receiver.count(len(jobs))
                await asyncio.sleep(0.3)
                assert sorted(one.body["job_id"] for one in heard) == sorted(job.id for job in jobs)
            finally:
                for director in directors:
                    await director.stop(0.0)

    main()


def client_of(house: Processes) -> Client:
    return Client(connection=Connection(url=house.url, state_dir=str(house.folder / ".regista")))


async def given_up(client: Client, number: int) -> list[dict[str, Any]]:
    """The dead letters, as soon as there are so many."""
    async with asyncio.timeout(5):
        while True:
            found = await client.webhooks()
            if len(found) >= number:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@pytest.mark.timeout(30)
@pytest.mark.slow
def test_what_was_committed_is_told_though_the_orchestrator_was_killed_before_it_could(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The receiver has the request in its hands and never answers; kill -9; the next life tells it again."""
    store = f"sqlite:{tmp_path / 'jobs.db'}"
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        assert server.ask("FLUSHALL") == "+OK"
        store = server.url
    house = Processes(tmp_path)
    house.set(REGISTA_WEBHOOK_ALLOW_PRIVATE="127.0.0.1/32", REGISTA_WEBHOOK_TIMEOUT_SECONDS="0.5")

    @in_loop
    async def main() -> None:
        async with receiving() as receiver:

            async def hang(number: int) -> web.StreamResponse:
                await asyncio.sleep(60 if number == 1 else 0)
                return web.Response()

            receiver.reply = hang
            first = await asyncio.to_thread(house.serve, "--storage", store)
            async with client_of(house) as client:
                job = await client.submit("ask", webhook_url=receiver.url)
            await receiver.count(1)
            await asyncio.to_thread(house.end, first, signal.SIGKILL)
            await asyncio.to_thread(house.serve, "--storage", store)
            again = (await receiver.count(2, within_s=15))[1]
            assert again.body["job_id"] == job.id
            assert again.headers["webhook-id"] == receiver.heard[0].headers["webhook-id"]

    try:
        main()
    finally:
        house.close()


@pytest.mark.timeout(30)
@pytest.mark.slow
def test_the_command_line_shows_sends_again_and_discards(tmp_path: Path) -> None:
    house = Processes(tmp_path)
    house.set(REGISTA_WEBHOOK_ALLOW_PRIVATE="true")

    @in_loop
    async def main() -> None:
        async with receiving() as receiver:
            gone(receiver)
            await asyncio.to_thread(house.serve, "--storage", "memory")

            async def said(*command: str) -> str:
                return await asyncio.to_thread(house.said, *command)

            async with client_of(house) as client:
                for _ in range(2):
                    await client.submit("ask", webhook_url=receiver.url)
                await receiver.count(2)
                found = await given_up(client, 2)
                secret = (await client.webhook_secret())["secrets"][0]
            listed = await said("webhooks", "list")
            assert all(one["id"] in listed for one in found)
            assert "answered 410" in listed
            assert await said("webhooks", "secret") == secret + "\n"
            assert "deleted" in await said("webhooks", "discard", found[0]["id"])
            listens(receiver)
            assert await said("webhooks", "redeliver") == "1 deliveries queued\n"
            await receiver.count(3)
            told = await said("audit")
            assert "webhook.redeliver" in told
            assert "operator:default" in told
            assert found[0]["id"] in await said("audit", "--action", "webhook.discard", "--json")

    try:
        main()
    finally:
        house.close()


async def test_a_delivery_that_nobody_can_read_is_left_out_of_the_lists() -> None:
    async with house() as (served, _):
        for collection in (WEBHOOK_COLLECTION, DEAD_COLLECTION):
            await served.director.storage.put_records([RecordWrite(collection, "spoiled-000001", b"\xc1")])
        for state in ("pending", "dead"):
            listed = await served.get(f"/api/v1/webhooks?state={state}", token="t-ops")
            assert (listed.status, listed.json["items"]) == (200, [])
        shown = await served.get("/api/v1/webhooks/spoiled-000001", token="t-ops")
        assert (shown.status, shown.code) == (404, "delivery_not_found")


async def test_what_is_on_its_way_already_is_not_sent_again_nor_told_in_the_audit() -> None:
    async with house() as (served, receiver):
        waits = delivery(client="ada", url=f"http://127.0.0.1:{receiver.port}/")
        due = served.director.clock.now() + timedelta(hours=1)
        await served.director.storage.put_records([delivery_write(waits, due)])
        for _ in range(3):
            assert (await served.post(f"/api/v1/webhooks/{waits.id}/redeliver")).status == 200
        (item,) = await served.director.storage.records(WEBHOOK_COLLECTION)
        assert item.due == due
        assert (await served.get("/api/v1/audit", token="t-ops")).json["items"] == []
