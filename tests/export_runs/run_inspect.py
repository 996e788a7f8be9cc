"Run an exported task in Inspect on a mock model that answers by the digest of what it is asked: `run_inspect.py OUT FOLDER TASK`."
import hashlib, json, sys
from pathlib import Path
from inspect_ai import eval
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model

out, folder, task = sys.argv[1:]
asked = {}


def answer(messages, tools, tool_choice, config):
    said = ['ANSWER: A', 'answer: b.', 'Let me see.\nANSWER: A', 'It may be the first.', ''][hashlib.sha256(messages[-1].text.encode()).digest()[0] % 5]
    asked[messages[-1].text] = said
    return ModelOutput.from_content('mockllm', said).model_copy(update=dict(usage=ModelUsage()))


def run(**args):
    log, = eval(f'{folder}/polyroute_task.py@{task}', model=get_model('mockllm/model', custom_outputs=answer), task_args=args, log_dir=f'{out}/{"part" if args else "whole"}', log_format='json', display='none')
    if log.status != 'success': sys.exit(str(log.error))
    return dict(items=len(log.samples), metrics={f'{s.scorer} {m}': v.value for s in log.results.scores for m, v in s.metrics.items()}, texts={s.id: s.metadata['state'] for s in read_eval_log(log.location).samples}, about=log.eval.metadata)


Path(out, 'told.json').write_text(json.dumps(dict(whole=run(), part=run(part='ar'), asked=asked)))
