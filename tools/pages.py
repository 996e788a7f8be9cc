"nbdev's processing of a notebook for reading, with the documentation of each function taken from the exported module."
import re
from execnb.nbio import read_nb
from execnb.shell import CaptureShell
from nbdev.config import get_config
from nbdev.process import Processor
from nbdev.processors import FilterDefaults, exec_show_docs

class show_docs_of_module(Processor):
    """Run the `show_doc` cells on what the module exports.

    nbdev's own step runs every cell that holds an import, without the cells before it."""
    def begin(self):
        self.k = CaptureShell()
        m = re.search(r'^#\|\s*default_exp\s+(\S+)', '\n'.join(c.source for c in self.nb.cells), re.M)
        self.run(f"from nbdev.showdoc import show_doc\n{f'from {get_config().lib_path.name}.{m[1]} import *' if m else ''}")

    def run(self, source):
        self.k.run(source)
        if self.k.exc: raise RuntimeError(f'{self.nb.path_}: importing its module failed: {self.k.exc!r}') from self.k.exc

    def cell(self, cell):
        if cell.cell_type != 'code' or not re.match(r'(?:#\|.*\n)*show_doc\(', cell.source): return
        self.k.cell(cell)
        if self.k.exc: raise RuntimeError(f'{self.nb.path_}: cannot document {cell.source}') from self.k.exc

class Pages(FilterDefaults):
    "The processors of nbdev, `exec_show_docs` replaced."
    def base_procs(self): return [show_docs_of_module if o is exec_show_docs else o for o in super().base_procs()]

def processed(
    path, # a notebook
): # the notebook as its readers see it
    "Return the notebook at `path` without hidden cells, with links and with the documentation of what it exports."
    nb = read_nb(path)
    Pages()(nb)
    return nb
