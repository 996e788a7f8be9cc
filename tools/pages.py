"nbdev's processing of a notebook for reading, with the documentation of each function and command taken from the exported module."
import ast, importlib, inspect, re
from dataclasses import is_dataclass
from execnb.nbio import read_nb
from execnb.shell import CaptureShell
from nbdev.config import get_config
from nbdev.process import Processor
from nbdev.processors import FilterDefaults, add_show_docs, exec_show_docs

class show_docs_in_order(add_show_docs):
    "nbdev's step, with the documentation of a cell's functions in the order in which they stand."
    def begin(self):
        super().begin()
        cells, start = self.nb.cells, 0
        while start < len(cells):
            end = start
            while end < len(cells) and getattr(cells[end], 'has_sd', False): end += 1
            cells[start:end] = cells[start:end][::-1]
            start = end + 1

class show_docs_of_module(Processor):
    """Run the `show_doc` cells on what the module exports.

    nbdev's own step runs every cell that holds an import, without the cells before it."""
    def begin(self):
        self.k, self.seen = CaptureShell(), {}
        m = re.search(r'^#\|\s*default_exp\s+(\S+)', '\n'.join(c.source for c in self.nb.cells), re.M)
        lib = get_config().lib_path.name
        self.module = m and f'{lib}.{m[1]}'
        self.run(f"from nbdev.showdoc import show_doc\nfrom IPython.display import Markdown\n{f'from {self.module} import *' if m else ''}")
        here = m and any(hasattr(o, 'callback') and hasattr(o, 'get_help') for o in vars(importlib.import_module(self.module)).values())
        self.commands = commands(importlib.import_module(f'{lib}.cli').main, self.module) if here else {}

    def run(self, source):
        self.k.run(source)
        if self.k.exc: raise RuntimeError(f'{self.nb.path_}: importing its module failed: {self.k.exc!r}') from self.k.exc

    def cell(self, cell):
        m = cell.cell_type == 'code' and re.match(r'(?:#\|.*\n)*show_doc\(([\w.]+)', cell.source)
        if not m: return
        source, text = cell.source, self.text(m[1])
        if text: cell.source = f'Markdown({text!r})'
        self.k.cell(cell)
        if self.k.exc: raise RuntimeError(f'{self.nb.path_}: cannot document {source}') from self.k.exc
        cell.source = source

    def text(self, name):
        "The documentation that nbdev cannot give: of a command, and of a class by its fields."
        if found := self.commands.get(name):      # several commands may be functions of one name: they come in the order of the notebook
            n = self.seen[name] = self.seen.get(name, -1) + 1
            return usage(*found[min(n, len(found) - 1)])
        made = self.k.user_ns.get(name)
        return record(made) if isinstance(made, type) and made.__module__ == self.module and (is_dataclass(made) or hasattr(made, '_fields')) else None

def commands(
    group, # a click group
    module: str, # whose commands are wanted
    path=('polyroute',), # how it is called
) -> dict: # name of a function -> [(command, how it is called)], in the order of the source
    "Return every command below a group that a module defines, by the function it was made of."
    out = {}
    for c, below in [(group, path), *((c, (*path, n)) for n, c in group.commands.items() if not hasattr(c, 'commands'))]:
        if c.callback and c.callback.__module__ == module: out.setdefault(c.callback.__name__, []).append((c, below))
    for n, c in group.commands.items():
        if hasattr(c, 'commands'):
            for f, found in commands(c, module, (*path, n)).items(): out[f] = out.get(f, []) + found
    return {f: sorted(found, key=lambda o: line(o[0].callback)) for f, found in out.items()}

def line(
    made, # a function or class
) -> int: # from 1
    "Return the line on which something is defined."
    return made.__code__.co_firstlineno if hasattr(made, '__code__') else inspect.getsourcelines(made)[1]

def section(
    title: str,
    made, # a function or class
    code: str,
    language: str, # of the code
    after: str = '', # Markdown
) -> str: # Markdown
    "Return a section of a page like those of nbdev: a link to the source, a title, a block of code."
    return f'---\n\n[source](./source/{made.__module__.split(".", 1)[1].replace(".", "/")}.html#L-{line(made)}){{.source-link}}\n\n### {title}\n\n````{language}\n{code}\n````\n{after}'

def usage(
    command, # of click
    path: tuple, # how it is called: ('polyroute', 'data', 'build')
) -> str: # Markdown
    "Return the documentation of a command: what `--help` prints."
    import click
    from polyroute.commands import main
    called = ' '.join(path)     # click keeps the help option that it makes first, so it is made as the command line makes it
    return section(called, command.callback, command.get_help(click.Context(command, info_name=called, **main.context_settings, max_content_width=76, terminal_width=76)), 'text')

def record(
    made: type, # a dataclass or a named tuple
) -> str: # Markdown
    "Return the documentation of a class by its fields, with their comments."
    lines = inspect.getsource(made).split('\n')
    tree = ast.parse('\n'.join(lines)).body[0]
    fields = [o for o in tree.body if isinstance(o, ast.AnnAssign)]
    code = '\n'.join([f'class {made.__name__}({", ".join(ast.unparse(b) for b in tree.bases)}):'.replace('()', ''), *(l for o in fields for l in lines[o.lineno - 1:o.end_lineno])])
    return section(made.__name__, made, code, 'python', f'\n*{inspect.getdoc(made)}*\n' if ast.get_docstring(tree) else '')

class Pages(FilterDefaults):
    "The processors of nbdev, those that document functions replaced."
    def base_procs(self): return [{exec_show_docs: show_docs_of_module, add_show_docs: show_docs_in_order}.get(o, o) for o in super().base_procs()]

def processed(
    path, # a notebook
): # the notebook as its readers see it
    "Return the notebook at `path` without hidden cells, with links and with the documentation of what it exports."
    nb = read_nb(path)
    Pages()(nb)
    return nb
