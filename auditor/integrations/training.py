"""A callback of transformers' Trainer, which alone imports transformers."""

from pathlib import Path
from typing import Any

import transformers

from auditor.errors import PublishError
from auditor.integrations.saves import fault_of


class TrainerCallback(transformers.TrainerCallback):
    """Audits each checkpoint that a Trainer saves, and refuses to push one with errors.

    `trainer.push_to_hub()` raises PublishError before it sends a file. A push of a checkpoint
    during the training is left out, and the training goes on. With `stop`, a saved checkpoint with
    an error ends the training.
    """

    def __init__(self, trainer: transformers.Trainer, *, stop: bool = False) -> None:
        self._stop = stop
        self._args = trainer.args
        self._is_pushing = False
        self._save, self._push = trainer.save_model, trainer.push_to_hub
        self._push_checkpoint = trainer._push_from_checkpoint  # noqa: SLF001 - of the training
        # The events of a callback come before the files are saved, and cannot leave out a push.
        vars(trainer).update(
            save_model=self._save_model,
            push_to_hub=self._push_to_hub,
            _push_from_checkpoint=self._push_sound_checkpoint,
        )

    def on_save(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **_: Any,
    ) -> None:
        if state.is_world_process_zero:
            folder = Path(args.output_dir or "", f"checkpoint-{state.global_step}")
            if fault_of(folder) and self._stop:
                control.should_training_stop = True

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        self._save(*args, **kwargs)
        if self._is_pushing and self._args.should_save:
            fault = fault_of(self._args.output_dir or "")
            if fault:
                raise PublishError(f"nothing was pushed: {fault}")

    def _push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        self._is_pushing = True
        try:
            return self._push(*args, **kwargs)
        finally:
            self._is_pushing = False

    def _push_sound_checkpoint(self, checkpoint_folder: str) -> None:
        if not fault_of(checkpoint_folder):
            self._push_checkpoint(checkpoint_folder)
