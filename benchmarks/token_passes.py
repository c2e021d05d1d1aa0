"""What the processes of benchmarks/data.py that tokenize have in common."""
import json
import time


def report_passes(arguments, programs):
  """Times each program once on the lines of a file and prints the seconds.

  Args:
    arguments: with `input_file`, and `ids_file`: the ids of the first program
      go there, a line each, and nothing is timed; None: nowhere.
    programs: {name: function of a list of lines that yields lists of ids}.
  """
  with open(arguments.input_file, encoding="utf-8") as reader:
    lines = reader.read().split("\n")
  if arguments.ids_file:
    program = next(iter(programs.values()))
    with open(arguments.ids_file, "w") as writer:
      writer.writelines(
          "%s\n" % " ".join(map(str, ids)) for ids in program(lines))
    programs = {}
  report = {}
  for name, program in programs.items():
    wall, cpu, num_tokens = time.perf_counter(), time.process_time(), 0
    for ids in program(lines):
      num_tokens += len(ids)
    report[name] = {"figures": [[time.perf_counter() - wall,
                                 time.process_time() - cpu]],
                    "tokens": num_tokens}
  print(json.dumps(report))
