"""One process of benchmarks/train_step.py --against=transformers.

Needs the Python packages torch and transformers, which this project does not:
name an interpreter that has them with --against_python.
"""
import argparse
import json

import torch
import transformers

from step_rows import make_rows, peak_memory_mb, time_steps


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--bert_config_file", required=True)
  parser.add_argument("--batch", type=int, required=True)
  parser.add_argument("--seq_length", type=int, required=True)
  parser.add_argument("--steps", type=int, required=True)
  parser.add_argument("--precision", choices=("fp32", "bf16"), required=True)
  arguments = parser.parse_args()

  config = transformers.BertConfig.from_json_file(arguments.bert_config_file)
  model = transformers.BertForQuestionAnswering(config).train()
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
  rows = {name: torch.from_numpy(value).long() for name, value in make_rows(
      arguments.batch, arguments.seq_length, config.vocab_size).items()}

  def step():
    with torch.autocast("cpu", torch.bfloat16,
                        enabled=arguments.precision == "bf16"):
      loss = model(
          input_ids=rows["input_ids"], attention_mask=rows["input_mask"],
          token_type_ids=rows["segment_ids"], start_positions=rows["start"],
          end_positions=rows["end"]).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()

  figures = time_steps(step, arguments.steps)
  print(json.dumps({"version": "PyTorch " + torch.__version__,
                    "figures": figures, "memory_mb": peak_memory_mb()}))


if __name__ == "__main__":
  main()
