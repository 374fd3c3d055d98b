"""A bucket of S3 on loopback, by moto: reports, requests, and a sweep that is stopped.

make test installs s3fs and moto apart; tests/end_to_end/test_libraries.py runs this file with them.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.libraries import needs
from support.running import started
from support.store_reports import of_any_source, without_source

from auditor.downloader.fetching import fetch
from auditor.sweep.store.reading import Store

pytestmark = [pytest.mark.slow, needs("s3fs"), needs("moto")]

MODELS = 500
MODEL = expect("BertModel")
TENSORS = {one.name: ("F32", one.shape) for one in stored_by(MODEL)}
WEIGHTS = safetensors_bytes(TENSORS)
CONFIG = config_bytes(architectures=["BertModel"])
WITHOUT_ONE = safetensors_bytes(dict(list(TENSORS.items())[1:]))
FILES = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "README.md": b"# a model"}


class Bucket:
    """A bucket named `bucket` on a server that counts its requests."""

    def __init__(self) -> None:
        import boto3  # noqa: PLC0415 - one of the packages apart

        self.requests: list[str] = []
        self._client = boto3.client("s3")
        self._client.create_bucket(Bucket="bucket")

    def put(self, name: str, content: bytes) -> None:
        self._client.put_object(Bucket="bucket", Key=name, Body=content)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - likewise
    from werkzeug.serving import WSGIRequestHandler  # noqa: PLC0415 - likewise

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        made = Bucket()
        patch.setattr(
            WSGIRequestHandler,
            "log_request",
            lambda handler, *_: made.requests.append(handler.requestline),
        )
        yield made
    server.stop()


@pytest.mark.parametrize("place", ["", "/model.safetensors"])
def test_a_bucket_has_the_report_of_the_folder_and_costs_no_more_than_the_hub(
    place, bucket, at_hub, tmp_path
):
    at_hub.add("o/n", FILES)
    for name, content in FILES.items():
        bucket.put(f"models/one/{name}", content)
        (tmp_path / name).write_bytes(content)
    fetch("o/n")
    bucket.requests.clear()
    assert of_any_source(f"s3://bucket/models/one{place}") == of_any_source(f"{tmp_path}{place}")
    assert len(bucket.requests) <= len(at_hub.log)


def test_a_sweep_that_is_stopped_and_resumed_has_the_outcomes_of_the_folders(bucket, tmp_path):
    folders = tmp_path / "folders"
    for number in range(MODELS):
        folder = folders / f"{number:03}"
        folder.mkdir(parents=True)
        weights = WEIGHTS if number % 7 else WITHOUT_ONE
        for name, content in {"config.json": CONFIG, "model.safetensors": weights}.items():
            (folder / name).write_bytes(content)
            bucket.put(f"swept/{number:03}/{name}", content)
    path = tmp_path / "sweep.sqlite"
    command = ("sweep", "s3://bucket/swept", "--night", "n1", "--quiet", "--store", str(path))
    process = started(*command, env=os.environ)
    while process.poll() is None and _outcomes(path) < MODELS // 5:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 128 + signal.SIGTERM, said
    assert MODELS // 5 <= _outcomes(path) < MODELS
    process = started(*command, env=os.environ)
    said = process.communicate()[1]
    assert process.returncode == 1, said
    with Store.open(path) as store:
        found = {one.model: one.outcome for one in store.results("n1")}
    assert len(found) == MODELS
    for address, outcome in found.items():
        folder = folders / address.rpartition("/")[2]
        assert without_source(outcome) == of_any_source(str(folder), companions=False)


def _outcomes(path: Path) -> int:
    if not path.exists():
        return 0
    with Store.open(path) as store:
        return sum(one.verdict is not None for one in store.results("n1"))
