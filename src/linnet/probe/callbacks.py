"""A probe as a callback of other libraries' training loops."""

from typing import Any

from linnet._check import InputError
from linnet.probe.probe import Probe


def trainer_callback(probe: Probe) -> Any:
    """For the `Trainer` of Hugging Face: `Trainer(..., callbacks=[ln.probe.trainer_callback(probe)])`.

    It takes learning rates from the trainer's optimizer. Steps are those of the optimizer, without their losses.
    """
    try:
        from transformers import TrainerCallback
    except ImportError:
        raise InputError("transformers is not installed: pip install transformers for its Trainer.") from None

    class Callback(TrainerCallback):  # type: ignore[misc]  # a class without types
        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            probe.follow(others["optimizer"])

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            probe.update(state.global_step)

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            probe.close()

    return Callback()


def lightning_callback(probe: Probe) -> Any:
    """For Lightning: `Trainer(..., callbacks=[ln.probe.lightning_callback(probe)])`. It follows the first optimizer."""
    try:
        from lightning.pytorch import Callback as Base
    except ImportError:
        raise InputError("lightning is not installed: pip install lightning for its Trainer.") from None

    class Callback(Base):  # type: ignore[misc]  # a class without types
        step = 0

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            probe.follow(trainer.optimizers[0])

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step > self.step:  # batches that are only accumulated make no step
                self.step = trainer.global_step
                probe.update(self.step, outputs["loss"] if isinstance(outputs, dict) else outputs)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            probe.close()

    return Callback()
