"""``hami resize``, asking a real scheduler as whoever a kubeconfig says."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from hami.cli.app import app
from hami.cli.commands import resize as command
from hami.cli.commands.api_client import Api
from hami.domain.errors import ConfigError
from hami.signing import new_private_pem

from .world.process import Service
from .world.users import a_user
from .world.world import World


@dataclass
class Asker:
    world: World
    service: Service
    token: str

    async def runs(self, *arguments: str, **more: str):
        """Exit code, standard output and standard error, of whoever the environment says."""
        env = {"HAMI_SERVER": self.service.plain, "KUBECONFIG": str(self._kubeconfig()), **more}
        done = await asyncio.to_thread(CliRunner().invoke, app, ["resize", *arguments], env=env)
        return done.exit_code, done.stdout, done.stderr

    def _kubeconfig(self):
        """Of the tenant, with a namespace of his own."""
        config = self.world.server.kubeconfig()
        config["users"][0]["user"] = {"token": self.token}
        config["contexts"][0]["context"]["namespace"] = "team"
        file = self.world.folder / "tenant.kubeconfig"
        file.write_text(json.dumps(config))
        return file


@pytest.fixture
async def asker(world):
    keys = world.folder / "keys.pem"
    keys.write_bytes(new_private_pem())
    await world.add_namespace("team")
    await world.add_nodes("n1")
    service = await world.service(signing_key_file=keys)
    asker = Asker(world, service, await a_user(world, "tenant", namespace="team"))
    await world.place(service, "p", namespace="team", gpu=1, mem=4000, cores=20)
    return asker


async def test_it_resizes_as_the_kubeconfig_says(asker):
    code, said, wrong = await asker.runs("p", "--gpumem=12Gi", "--gpucores=50")
    assert (code, wrong) == (0, "")
    assert said == "team/p on n1: generation 2\n  main: GPU-n1-0: 12288 MiB, 50 %\n"


async def test_json_is_the_answer_as_it_came(asker):
    code, said, _ = await asker.runs("p", "-c", "main", "--gpumem", "5000", "--request-id", "r", "--json")  # fmt: skip
    assert code == 0
    answer = json.loads(said)
    assert (answer["requestId"], answer["generation"]) == ("r", 2)
    assert answer["containers"][0]["grants"][0]["memoryMiB"] == 5000


async def test_a_refusal_is_exit_code_1_and_has_the_numbers(asker):
    code, said, wrong = await asker.runs("p", "--gpumem=16001")
    assert (code, said) == (1, "")
    assert wrong == (
        "hami: not resized: CardInsufficientMemory: device GPU-n1-0: nvidia.com/gpumem: asked 16001 "
        "MiB > free 16000 MiB (it has 16000, other pods 0)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "more", "code", "text"),
    [
        pytest.param(["p"], {}, 2, "name what is to change", id="nothing"),
        pytest.param(["p", "--gpumem=lots"], {}, 2, "--gpumem 'lots' is not a quantity", id="no amount"),
        pytest.param(["p", "--gpucores=101"], {}, 2, "cores 101 is not from 0 to 100", id="too much"),
        pytest.param(["p", "--gpumem=1", "-n", "default"], {}, 1, "Forbidden: user system:serviceaccount:team:tenant may not update pods/resize", id="elsewhere"),
        pytest.param(["q", "--gpumem=1"], {}, 1, "NotFound", id="another pod"),
        pytest.param(["p", "--gpumem=1"], {"HAMI_TOKEN": "nonsense"}, 1, "Unauthorized", id="a token in the environment comes first"),
        pytest.param(["p", "--gpumem=1", "--server", "http://192.0.2.1:9395"], {}, 2, "a token is sent over HTTPS", id="where others read it"),
        pytest.param(["p", "--gpumem=1", "--kubeconfig", "/nowhere"], {}, 2, "/nowhere: no such file", id="no kubeconfig"),
    ],
)  # fmt: skip
async def test_what_it_says_otherwise(asker, arguments, more, code, text):
    found, said, wrong = await asker.runs(*arguments, **more)
    assert (found, said) == (code, "")
    assert text in wrong


async def test_a_user_without_a_token(asker, tmp_path):
    config = asker.world.server.kubeconfig()
    config["users"][0]["user"] = {}
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    code, _, wrong = await asker.runs("p", "--gpumem=1", "--kubeconfig", str(file))
    assert code == 2
    assert "set HAMI_TOKEN, for example to what kubectl create token ACCOUNT prints" in wrong


async def test_another_server_is_named(asker):
    other = asker.world.server.url
    code, _, wrong = await asker.runs("p", "--gpumem=1", "--server", other)
    assert code == 2
    assert "it is no hami scheduler" in wrong


def test_it_asks_again_with_the_same_id_while_nobody_knows(monkeypatch):
    answers = [(409, "Busy"), (504, "Unknown"), (409, "Refused")]
    asked = []

    def post(self, body, *_rest):
        asked.append(json.loads(body)["requestId"])
        status, reason = answers[len(asked) - 1]
        return status, json.dumps({"reason": reason, "message": "m"}).encode()

    monkeypatch.setattr(Api, "post", post)
    wanted = command.read_wanted("", None, 5, None, "r")
    caller = command.Caller("Bearer t", "default")
    answer = command.ask(
        Api("http://127.0.0.1:1"), caller, ("default", "p"), wanted, lambda _: None
    )
    assert answer.reason == "Refused"
    assert asked == ["r", "r", "r"]


def test_a_server_s_name_may_hold_no_user():
    with pytest.raises(ConfigError, match="names a user"):
        Api("http://user@127.0.0.1:1")
