"Run notebooks in place in a real kernel and keep their outputs: `run_nbs.py [NOTEBOOK ...]`, all of nbs/ by default."
import os, re, sys, time
from pathlib import Path
import nbformat
from nbclient import NotebookClient
from nbdev.config import get_config

ROOT = Path(__file__).resolve().parents[1]

class Client(NotebookClient):
    "A notebook client that leaves the cells matching `skip` as they are, saved outputs included."
    skip = None

    async def async_execute_cell(self, cell, cell_index, **kwargs):
        if cell.cell_type == 'code' and self.skip.search(cell.source): return cell
        return await super().async_execute_cell(cell, cell_index, **kwargs)

def skip_pattern(
    flags: str, # nbdev's tst_flags, separated by spaces
) -> re.Pattern: # found in the source of a cell that must not run
    "Return the pattern of the cells that nbdev_test skips too."
    names = '|'.join(map(re.escape, flags.split()))
    return re.compile(rf'^#\s*\|\s*(?:eval:\s*false|(?:{names}))\s*$|nbdev_export\(', re.M | re.I)

def run(
    path: Path, # a notebook, executed in its own folder
    timeout: int = 600, # seconds a cell may take
):
    "Execute the notebook at `path` and write it back only if every cell ran."
    nb = nbformat.read(path, 4)
    Client(nb, timeout=timeout, kernel_name='python3', resources={'metadata': {'path': str(path.parent)}}, record_timing=False).execute()
    tmp = path.with_name(f'.{path.name}.tmp')
    nbformat.write(nb, tmp)
    os.replace(tmp, path)

def main():
    files = [Path(o).resolve() for o in sys.argv[1:]]
    os.chdir(ROOT)
    cfg = get_config()
    Client.skip = skip_pattern(cfg.tst_flags)
    for f in files or sorted(cfg.nbs_path.rglob('[!._]*.ipynb')):
        if '.ipynb_checkpoints' in f.parts: continue
        start = time.time()
        run(f)
        print(f'ran {f.name} in {time.time() - start:.0f} s', flush=True)

if __name__ == '__main__': main()
