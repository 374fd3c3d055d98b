"""Verdicts of serving engines (vLLM, MLX, llama.cpp), by what their loaders did."""

from auditor.engines.adapters import Adapter as Adapter
from auditor.engines.adapters import judge_adapter as judge_adapter
from auditor.engines.knowledge import ENGINES as ENGINES
from auditor.engines.knowledge import OF_ADAPTERS as OF_ADAPTERS
from auditor.engines.knowledge import knowledge_of as knowledge_of
from auditor.engines.results import EngineVerdict as EngineVerdict
from auditor.engines.verdict import ExpectedShapes as ExpectedShapes
from auditor.engines.verdict import ServedModel as ServedModel
from auditor.engines.verdict import judge as judge
from auditor.engines.verdict import unknown_verdict as unknown_verdict
