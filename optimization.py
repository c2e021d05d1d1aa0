"""Google's module name for the optimizer; see `optimization_multigpu`."""
from optimization_multigpu import AdamWeightDecayOptimizer
from optimization_multigpu import create_optimizer

__all__ = ["AdamWeightDecayOptimizer", "create_optimizer"]
