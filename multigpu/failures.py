"""Failures while a run is under way that a person can do something about."""
from typing import Any, Mapping, Optional

# Flags that memory depends on, in the order in which to lower them.
_MEMORY_FLAGS = ("train_batch_size", "eval_batch_size", "predict_batch_size",
                 "max_seq_length")


def explain_memory(message: str, values: Mapping[str, Any]) -> Optional[str]:
  """Says what to lower when a device is out of memory.

  Args:
    message: of TensorFlow's ResourceExhaustedError.
    values: {flag: value} of the program.

  Returns:
    The message for the user; None when it is about something else (a full disk
    is the same error).
  """
  if "OOM when allocating" not in message:
    return None
  lines = message.split("\n")
  what = next(line for line in lines if "OOM when allocating" in line)
  flags = ", ".join("--{}={}".format(flag, values[flag])
                    for flag in _MEMORY_FLAGS if values.get(flag))
  advice = ""
  if "gradient_accumulation_steps" in values and values.get("do_train"):
    advice = (" --gradient_accumulation_steps=N keeps the global batch with a "
              "smaller batch per GPU; --precision=fp16 takes less memory.")
  return ("out of memory with {}: lower the batch size first, then the length."
          "{} Is another program using the GPU (nvidia-smi)? TensorFlow says: "
          "{}".format(flags, advice, what.strip()[:300]))
