"Run exported tasks in MTEB on an encoder that hashes characters: `run_mteb.py OUT FOLDER …`."
import importlib.util, json, sys
from pathlib import Path
import mteb
from mteb.models.model_meta import ModelMeta
from sklearn.feature_extraction.text import HashingVectorizer

out, *folders = map(Path, sys.argv[1:])


class Encoder:
    mteb_model_meta = ModelMeta.create_empty()
    seen = {}

    def encode(self, inputs, *, task_metadata, hf_split, hf_subset, **kw):
        texts = [t for batch in inputs for t in batch['text']]
        self.seen[f'{task_metadata.name} {hf_subset} {hf_split}'] = texts
        return HashingVectorizer(analyzer='char', ngram_range=(1, 2), n_features=64).transform(texts).toarray()

    def similarity(self, a, b): return a @ b.T
    def similarity_pairwise(self, a, b): return (a * b).sum(1)


def tasks(folder):
    spec = importlib.util.spec_from_file_location(f'tasks_{folder.name}', folder/'polyroute_mteb.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [t() for t in module.TASKS]


found = mteb.evaluate(Encoder(), [t for f in folders for t in tasks(f)], cache=None, prediction_folder=out/'predictions', show_progress_bar=False, co2_tracker=False)
scores = {r.task_name: {s['hf_subset']: dict(accuracy=s['accuracy'], languages=s['languages']) for s in r.scores['test']} for r in found.task_results}
(out/'told.json').write_text(json.dumps(dict(scores=scores, seen=Encoder.seen)))
