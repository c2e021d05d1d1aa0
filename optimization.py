"""Google's module name for the optimizer; see `optimization_multigpu`."""
from optimization_multigpu import ADAMW
from optimization_multigpu import DEFAULT_NUM_PACKS
from optimization_multigpu import GRADIENT_NORM
from optimization_multigpu import LAMB
from optimization_multigpu import LOSS_SCALE
from optimization_multigpu import OPTIMIZERS
from optimization_multigpu import AdamWeightDecayOptimizer
from optimization_multigpu import create_optimizer
from optimization_multigpu import DynamicLossScale
from optimization_multigpu import LambOptimizer

__all__ = ["ADAMW", "AdamWeightDecayOptimizer", "DEFAULT_NUM_PACKS",
           "DynamicLossScale", "GRADIENT_NORM", "LAMB", "LOSS_SCALE",
           "LambOptimizer", "OPTIMIZERS", "create_optimizer"]
