"""What `auditor.integrations.TrainerCallback` costs a training: seconds in it, and its share.

Trains BERT of the published size, or of `--layers`, for `--steps` steps on random tokens, and saves
at each `--save-steps`. The first audit also imports the auditor.
"""

import argparse
import tempfile
import time
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench_callback", description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--save-steps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8, help="rows of 128 tokens")
    options = parser.parse_args()
    import torch  # noqa: PLC0415 - --help needs no library
    import transformers  # noqa: PLC0415 - likewise

    from auditor.integrations import TrainerCallback  # noqa: PLC0415 - likewise

    config = transformers.BertConfig(num_hidden_layers=options.layers)
    model = transformers.BertForSequenceClassification(config)
    rows = [
        {"input_ids": torch.randint(0, 30_000, (128,)), "labels": torch.tensor(0)}
        for _ in range(options.batch)
    ]
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder,
            max_steps=options.steps,
            save_steps=options.save_steps,
            per_device_train_batch_size=options.batch,
            save_total_limit=1,
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(model, args, train_dataset=rows)
        callback, spent = TrainerCallback(trainer), []
        audit = callback.on_save

        def timed(*args: Any, **kwargs: Any) -> None:
            before = time.perf_counter()
            audit(*args, **kwargs)
            spent.append(time.perf_counter() - before)

        vars(callback)["on_save"] = timed
        trainer.add_callback(callback)
        start = time.perf_counter()
        trainer.train()
        total = time.perf_counter() - start
    audits = ", ".join(f"{1000 * one:.0f} ms" for one in spent)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {options.steps} steps")
    print(f"training {total:.1f} s; audits {audits}: {100 * sum(spent) / total:.2f} %")


if __name__ == "__main__":
    main()
