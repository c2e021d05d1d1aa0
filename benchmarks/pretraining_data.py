"""How fast text becomes pre-training records, against a straightforward
program, and how much memory that takes.

  python benchmarks/pretraining_data.py --input_file=corpus.txt \
      --vocab_file=vocab.txt

Each run is a process of its own, from start to exit, so that imports count and
memory can be seen. The straightforward program is
benchmarks/plain_pretraining_data.py. (It needs TensorFlow for its messages; how
long the import takes is measured by itself.) The records must be the same to
the last number; this is checked before anything is timed.

With --memory_documents=N a made-up corpus of N documents is processed with
--dupe_factor 1 and 10, to show that memory does not depend on it.
"""
import argparse
from concurrent import futures
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SAMPLE_SECONDS = 0.02


def make_commands(args, folder):
  """Returns {program: (command, its output)}."""
  plain = os.path.join(folder, "straightforward.tfrecord")
  commands: Dict[str, Any] = {"straightforward": ([
      sys.executable, os.path.join(ROOT, "benchmarks",
                                   "plain_pretraining_data.py"),
      args.input_file, plain, args.vocab_file, str(args.dupe_factor),
      str(args.max_seq_length)], plain)}
  for num_workers in args.workers:
    output = os.path.join(folder, "project-%d.tfrecord" % num_workers)
    commands["project, %d worker%s" % (num_workers, "s"[:num_workers - 1])] = (
        make_project_command(args, args.input_file, output, args.dupe_factor,
                             num_workers), output)
  commands["import tensorflow"] = (
      [sys.executable, "-c", "import tensorflow.compat.v1"], None)
  return commands


def make_project_command(args, input_file, output, dupe_factor, num_workers):
  return [
      sys.executable, os.path.join(ROOT, "create_pretraining_data.py"),
      "--input_file=" + input_file, "--output_file=" + output,
      "--vocab_file=" + args.vocab_file, "--dupe_factor=%d" % dupe_factor,
      "--max_seq_length=%d" % args.max_seq_length,
      "--num_workers=%d" % num_workers]


def run_process(command):
  """Runs a command; returns wall seconds, CPU seconds and peak MB.

  Memory is the sum over all its processes, looked at now and then; pages that
  forked processes share count several times.
  """
  with tempfile.TemporaryFile() as log:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=log, stderr=log)
    peak = 0
    while True:
      pid, status, usage = os.wait4(process.pid, os.WNOHANG)
      if pid:
        break
      peak = max(peak, sum_memory(process.pid))
      time.sleep(SAMPLE_SECONDS)
    wall = time.perf_counter() - start
    process.returncode = status
    if status:
      log.seek(0)
      sys.exit("%s\nfailed:\n%s" % (" ".join(command),
                                    log.read().decode("utf-8", "replace")))
  peak = max(peak, usage.ru_maxrss * 1024)
  return wall, usage.ru_utime + usage.ru_stime, peak / 1e6


def sum_memory(pid):
  """Returns the resident bytes of a process and its children."""
  total = 0
  try:
    with open("/proc/%d/task/%d/children" % (pid, pid)) as reader:
      children = reader.read().split()
    with open("/proc/%d/statm" % pid) as reader:
      total = int(reader.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
  except (OSError, IndexError):
    return 0  # it has just ended
  return total + sum(sum_memory(int(child)) for child in children)


def read_records(path):
  """Yields each record as {name: values}."""
  import tensorflow.compat.v1 as tf
  tf.logging.set_verbosity(tf.logging.ERROR)  # the iterator is deprecated
  for record in tf.io.tf_record_iterator(path):
    features = tf.train.Example.FromString(record).features.feature
    yield {name: list(value.int64_list.value or value.float_list.value)
           for name, value in features.items()}


def assert_same_records(expected, actual):
  """Compares two files; returns the number of records."""
  num_records, others = 0, read_records(actual)
  for record in read_records(expected):
    other = next(others)
    assert record == other, (record, other)
    num_records += 1
  assert next(others, None) is None, "%s has more records" % actual
  return num_records


def measure(args, folder, report):
  """Checks, measures and prints the programs."""
  commands = make_commands(args, folder)
  for command, _ in commands.values():
    run_process(command)
  outputs = [output for _, output in commands.values() if output]
  # In a process of its own: what is started here later would take over the
  # size of this one, with TensorFlow in it, as its peak.
  with futures.ProcessPoolExecutor(1) as executor:
    for output in outputs[1:]:
      report["records"] = executor.submit(assert_same_records, outputs[0],
                                          output).result()
  print("%d records, the same from all programs" % report["records"])
  print("%-20s %8s %8s %10s %12s" % ("program", "wall s", "CPU s", "memory MB",
                                     "records/s"))
  # In turn, so that what else the machine does hits all of them.
  rounds = [[run_process(command) for command, _ in commands.values()]
            for _ in range(args.runs)]
  for (name, (_, output)), runs in zip(commands.items(), zip(*rounds)):
    wall, cpu, peak = map(statistics.median, zip(*runs))
    report["programs"][name] = {"wall_s": wall, "cpu_s": cpu, "peak_mb": peak}
    print("%-20s %8.2f %8.2f %10.0f %12s" % (
        name, wall, cpu, peak,
        "%.0f" % (report["records"] / wall) if output else ""))
  figures = list(report["programs"].values())
  plain, project, imports = figures[0], figures[-2], figures[-1]
  report["speedup_wall"] = plain["wall_s"] / project["wall_s"]
  report["speedup_without_import"] = (
      (plain["wall_s"] - imports["wall_s"]) / project["wall_s"])
  report["speedup_cpu"] = plain["cpu_s"] / project["cpu_s"]
  print("the project's is %.1f times as fast (CPU time: %.1f times; wall time "
        "without the other's import of TensorFlow: %.1f times)"
        % (report["speedup_wall"], report["speedup_cpu"],
           report["speedup_without_import"]))


def write_corpus(path, num_documents):
  """Writes a made-up corpus: five sentences a document."""
  rng = random.Random(0)
  words = ("the old small river boat tower town note book child wind lamp "
           "stone bridge north road went came saw left under with").split()
  with open(path, "w") as writer:
    for _ in range(num_documents):
      for _ in range(5):
        writer.write(" ".join(rng.choice(words) for _ in range(
            rng.randint(5, 25))) + ".\n")
      writer.write("\n")


def measure_memory(args, folder, report):
  """Prints the memory of the project's program by dupe factor."""
  corpus = os.path.join(folder, "corpus.txt")
  write_corpus(corpus, args.memory_documents)
  report["memory"] = {"documents": args.memory_documents,
                      "text_mb": os.path.getsize(corpus) / 1e6, "peak_mb": {}}
  print("%d documents, %.1f MB of text, one worker:"
        % (args.memory_documents, report["memory"]["text_mb"]))
  for dupe_factor in (1, 10):
    output = os.path.join(folder, "memory.tfrecord")
    wall, _, peak = run_process(
        make_project_command(args, corpus, output, dupe_factor, 1))
    report["memory"]["peak_mb"][dupe_factor] = peak
    print("  --dupe_factor=%-2d: %5.1f MB of memory, %5.1f MB of records, "
          "%.1f s" % (dupe_factor, peak, os.path.getsize(output) / 1e6, wall))


def parse_arguments():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--input_file", required=True)
  parser.add_argument("--vocab_file", required=True, help="an uncased one")
  parser.add_argument("--dupe_factor", type=int, default=5)
  parser.add_argument("--max_seq_length", type=int, default=128)
  parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
  parser.add_argument("--runs", type=int, default=3)
  parser.add_argument("--memory_documents", type=int, default=0, metavar="N")
  parser.add_argument("--json", metavar="PATH", help="write the figures there")
  return parser.parse_args()


def main():
  args = parse_arguments()
  print("Python %s, %s, median of %d runs of whole processes" % (
      platform.python_version(), platform.machine(), args.runs))
  report = {"python": platform.python_version(), "runs": args.runs,
            "dupe_factor": args.dupe_factor,
            "max_seq_length": args.max_seq_length, "programs": {}}
  with tempfile.TemporaryDirectory() as folder:
    measure(args, folder, report)
    if args.memory_documents:
      measure_memory(args, folder, report)
  if args.json:
    with open(args.json, "w", encoding="utf-8") as writer:
      json.dump(report, writer, indent=2)
      writer.write("\n")


if __name__ == "__main__":
  main()
