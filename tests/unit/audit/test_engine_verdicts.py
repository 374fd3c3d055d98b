"""`--for` has an answer of each engine."""

from pathlib import Path

from auditor import audit


def test_engines_do_not_know_whether_they_load_a_model_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(b"")
    outcome = audit(str(tmp_path), engines=("vllm", "mlx"))
    assert [(one.engine, one.loads) for one in outcome.engines] == [("vllm", None), ("mlx", None)]
    assert all(one.reasons for one in outcome.engines)
