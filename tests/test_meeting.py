"""How hosts find each other, wait and end; no TensorFlow."""
import logging
import socket
import subprocess
import sys
import threading

import pytest

from conftest import ROOT
from multigpu import meeting as meeting_lib
from multigpu.errors import UserError
from multigpu.hosts import Hosts
import programs

PACE = meeting_lib.Pace(report=0.3, beat=0.2, silence=2.0, retry=0.05,
                        grace=0.3)


def make_hosts(count=3):
  addresses = ["localhost:%d" % port for port in programs.free_ports(count)]
  names = ["chief"] + ["worker %d" % i for i in range(count - 1)]
  return [Hosts(addresses, names, i) for i in range(count)]


def in_threads(function, arguments):
  """Calls it for each argument at once; returns the results or UserErrors."""
  results = {}

  def call(i, argument):
    try:
      results[i] = function(argument)
    except UserError as error:
      results[i] = error
  threads = [threading.Thread(target=call, args=pair)
             for pair in enumerate(arguments)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(30)
  return [results[i] for i in range(len(arguments))]


def test_all_see_what_each_brings():
  def run(hosts):
    meeting = meeting_lib.Meeting(hosts, 20, PACE)
    meeting.join()
    found = meeting.gather("first", hosts.rank), meeting.gather("second")
    meeting.leave()
    return found, meeting.failure

  assert in_threads(run, make_hosts()) == [(([0, 1, 2], [None] * 3), None)] * 3


@pytest.mark.parametrize("present, missing", [
    ((0, 1), [["worker 1"]] * 2), ((1, 2), [["the chief"]] * 2),
    ((0,), [["worker 0", "worker 1"]])])
def test_who_is_missing(caplog, present, missing):
  caplog.set_level(logging.INFO)
  hosts = make_hosts()
  errors = in_threads(
      lambda one: meeting_lib.Meeting(one, 0.8, PACE).join(),
      [hosts[i] for i in present])
  for error, names in zip(errors, missing):
    assert isinstance(error, UserError)
    for name in names:
      assert "for " in str(error) and name in str(error)
  assert "--worker_timeout" in str(errors[0])
  # It is said before, with the address.
  said = [record.getMessage() for record in caplog.records]
  for name in missing[0]:
    assert any(line.startswith("waiting for") and name in line
               and "localhost:" in line for line in said)


def test_another_program_at_the_chiefs_port():
  hosts = make_hosts(2)
  with socket.socket() as other:
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind(("", int(hosts[0].addresses[0].split(":")[1])))
    other.listen(5)

    def answer():
      connection, _ = other.accept()
      connection.sendall(b"\0\0\0binary\xff\n")
      connection.close()
    threading.Thread(target=answer, daemon=True).start()
    with pytest.raises(UserError, match="the chief"):
      meeting_lib.Meeting(hosts[1], 0.5, PACE).join()
    with pytest.raises(UserError, match="cannot be used"):
      meeting_lib.Meeting(hosts[0], 0.5, PACE).join()


def test_another_cluster():
  chief, worker, _ = make_hosts()
  stray = worker._replace(addresses=list(worker.addresses[:2]))
  errors = in_threads(lambda one: meeting_lib.Meeting(one, 1, PACE).join(),
                      [chief, stray])
  assert "another TF_CONFIG" in str(errors[1])
  assert "worker 0" in str(errors[0])  # it goes on waiting for the right one


PROGRAM = """
import sys, time
sys.path.insert(0, %r)
from multigpu import hosts, meeting
meeting = meeting.Meeting(hosts.Hosts(%r, %r, int(sys.argv[1])), 20,
                          meeting.Pace(beat=0.2, silence=2.0, retry=0.05,
                                       grace=0.3))
meeting.join()
print("here", flush=True)
if int(sys.argv[1]) == %d:
  %s
%s
"""
WORK = "time.sleep(60)"  # as inside TensorFlow
WAIT = "meeting.gather('wait')"  # for the one that sleeps


@pytest.mark.parametrize("ending", [0, 1])
@pytest.mark.parametrize("doing", [WORK, WAIT])
def test_the_end_of_one_is_the_end_of_all(ending, doing):
  hosts = make_hosts()
  code = PROGRAM % (str(ROOT), hosts[0].addresses, hosts[0].names, ending, WORK,
                    doing)
  processes = [subprocess.Popen(
      [sys.executable, "-c", code, str(i)], text=True, stdout=subprocess.PIPE,
      stderr=subprocess.PIPE) for i in range(3)]
  try:
    for process in processes:
      assert process.stdout.readline() == "here\n"
    processes[ending].kill()
    for i, process in enumerate(processes):
      text = process.communicate(timeout=20)[1]
      if i != ending:
        assert process.returncode == 1
        assert "%s has ended" % hosts[0].describe(ending) in text
  finally:
    for process in processes:
      process.kill()
      process.wait()
