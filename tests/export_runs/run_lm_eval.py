"Run an exported task in lm-evaluation-harness on a tiny GPT-2 of bytes: `run_lm_eval.py OUT FOLDER GROUP`."
import json, sys
from pathlib import Path
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

out, folder, group = sys.argv[1:]
torch.set_num_threads(1); torch.manual_seed(0)
bytewise = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(['<end>', *sorted(pre_tokenizers.ByteLevel.alphabet())])}, merges=[]))
bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token='<end>', bos_token='<end>', pad_token='<end>')
model = GPT2LMHeadModel(GPT2Config(vocab_size=257, n_positions=768, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0, initializer_range=1.))


class Watched(HFLM):
    "Keeps what it was asked."
    asked = []

    def loglikelihood(self, requests, **kw):
        self.asked += [list(r.args) for r in requests]
        return super().loglikelihood(requests, **kw)


lm = Watched(pretrained=model.eval(), tokenizer=tokenizer, max_length=768, batch_size=16, device='cpu')
found = simple_evaluate(lm, tasks=[group], task_manager=TaskManager(include_path=folder, include_defaults=False), bootstrap_iters=0)
tracker = EvaluationTracker(output_path=f'{out}/told.json')     # into its folder
tracker.date_id = 'now'
for task, samples in found['samples'].items(): tracker.save_results_samples(task, samples)
shots = TaskManager(include_path=folder, include_defaults=False).load([group])['tasks']
task = next(iter(shots.values()))
Path(out, 'told.json').write_text(json.dumps(dict(results=found['results'], asked=Watched.asked, counts={n: len(t.eval_docs) for n, t in shots.items()},
                                                  few=task.fewshot_context(task.eval_docs[0], 2) if task.has_training_docs() or task.config.fewshot_split else None)))
