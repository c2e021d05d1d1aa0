"""Runs graph code on several CPU replicas, without Estimator."""
import tensorflow.compat.v1 as tf

if not tf.__version__.startswith("1."):
  # A strategy of TensorFlow 2 makes variables outside of any graph, and the
  # devices there are those of the first one that was made in the process.
  tf.config.experimental.set_virtual_device_configuration(
      tf.config.experimental.list_physical_devices("CPU")[0],
      [tf.config.experimental.VirtualDeviceConfiguration()] * 4)


def cpu_devices(count):
  """Names of the first `count` CPU devices."""
  return ["/cpu:%d" % i for i in range(count)]


def cpu_session_config(count):
  """A session with `count` CPU devices."""
  return tf.ConfigProto(device_count={"CPU": count},
                        intra_op_parallelism_threads=1,
                        inter_op_parallelism_threads=2)


def replica_id():
  """Number of the replica that is being built, as a Python integer."""
  value = tf.distribute.get_replica_context().replica_id_in_sync_group
  return value if isinstance(value, int) else int(tf.get_static_value(value))


def on_replicas(count, fn):
  """Calls `fn()` on each of `count` replicas.

  Args:
    count: number of CPU replicas; 0 = without any distribution strategy.
    fn: builds the graph of one replica and returns a dict of tensors or ops.

  Returns:
    One dict a replica.
  """
  if not count:
    return [fn()]
  strategy = tf.distribute.MirroredStrategy(devices=cpu_devices(count))
  with strategy.scope():
    result = strategy.extended.call_for_each_replica(fn)
  local = {key: strategy.experimental_local_results(value)
           for key, value in result.items()}
  return [{key: values[i] for key, values in local.items()}
          for i in range(count)]
