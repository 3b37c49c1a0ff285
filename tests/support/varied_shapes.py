"""The shapes of the programs of ``varied``: how a cycle closes, with places for what is varied."""

from __future__ import annotations

SHAPES = {
    # Functions and methods on their owner.
    "lambda": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}lambda *args: ({self}, {use}){unwrap}
        def leak():
            A()
        """,
    "inner function": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                def {f}(*args):
                    return {self}, {use}
                {self}.{x} = {wrap}{f}{unwrap}
        def leak():
            A()
        """,
    "default argument": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                def {f}(one=1, {v}={self}):
                    return {v}, {use}
                {self}.{x} = {wrap}{f}{unwrap}
        def leak():
            A()
        """,
    "closure and default": """
        {class_A}
            def __init__({self}):
                {fill}
                def {f}(one=1, {v}={self}):
                    return {v}, {self}
                {self}.{x} = {wrap}{f}{unwrap}
        def leak():
            A()
        """,
    "bound method": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}{self}.{f}{unwrap}
            def {f}(self, *args):
                pass
        def leak():
            A()
        """,
    "bound method of another": """
        {class_A}
            def __init__({self}, {v}):
                {fill}
                {self}.{x} = {v}.{f}
        {class_B}
            def __init__(self):
                {noise_B}
                self.{y} = {wrap}A(self){unwrap}
            def {f}(self, *args):
                pass
        def leak():
            B()
        """,
    "partial of a method": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}functools.partial({self}.{f}, 1){unwrap}
            def {f}(self, *args):
                pass
        def leak():
            A()
        """,
    "partial with its owner": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}functools.partial(print, 1, {self}){unwrap}
        def leak():
            A()
        """,
    "decorated method": """
        def {f}(call):
            @functools.wraps(call)
            def wrapper(*args):
                return call(*args)
            return wrapper
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}{f}({self}.{g}){unwrap}
            def {g}(self, *args):
                pass
        def leak():
            A()
        """,
    "cached method": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}functools.lru_cache(maxsize=None)({self}.{f}){unwrap}
            def {f}(self, *args):
                pass
        def leak():
            A()
        """,
    "iterator": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}map({self}.{f}, [1, 2]){unwrap}
            def {f}(self, *args):
                pass
        def leak():
            A()
        """,
    "generator": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}{self}.{f}(){unwrap}
            def {f}(self):
                {local_noise}
                yield 1
                yield self, {local_use}
        def leak():
            made = A()
            for {v} in {reach}:
                next({v})
            {v} = None
        """,
    "coroutine": """
        @types.coroutine
        def pause():
            yield
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {self}.{f}()
                {self}.{x}.send(None)
            async def {f}(self):
                {local_noise}
                await pause()
                return self, {local_use}
        def leak():
            A()
        """,
    "property": """
        def leak():
            {class_A_inner}
                def __init__({self}):
                    {fill}
                    {noise}
            {v} = A()
            A.{g} = property(lambda it: ({v}, it))
        """,
    "weak reference with a callback": """
        {class_A}
            def __init__({self}, other):
                {fill}
                {noise}
                {self}.{x} = weakref.ref(other, lambda _: ({self}, {use}))
        class Other:
            pass
        ALIVE = Other()
        def leak():
            A(ALIVE)
        """,
    "thread": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = threading.Thread(target={self}.{f})
            def {f}(self):
                pass
        def leak():
            A()
        """,
    # Objects that know each other.
    "itself": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {self}
        def leak():
            A()
        """,
    "child": """
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = {wrap}B({self}){unwrap}
        {class_B}
            def __init__(self, {v}):
                {noise_B}
                self.{y} = {v}
        def leak():
            A()
        """,
    "child with the tensor": """
        {class_B}
            def __init__(self):
                {noise_B}
                self.{y} = {wrap}A(self){unwrap}
        {class_A}
            def __init__({self}, {v}):
                {fill}
                {noise}
                {self}.{x} = {v}
        def leak():
            B()
        """,
    "dataclasses": """
        @dataclasses.dataclass(eq=False)
        class A:
            {z}: object
            {x}: object = None
            def attach(self, {v}):
                self.{x} = {v}
        @dataclasses.dataclass(eq=False)
        class B:
            {y}: object
        def leak():
            {v} = A(T())
            {v}.attach(B({v}))
        """,
    "two ways back": """
        {class_A}
            def __init__({self}):
                {fill}
                {self}.{x} = lambda: {self}
                {self}.{g} = {self}.{f}
            def {f}(self):
                pass
        def leak():
            A()
        """,
    "ring": """
        {class_A}
            def __init__({self}):
                {fill}
                {self}.{x} = None
        def leak():
            {v} = [A() for _ in range({many})]
            for i, one in enumerate({v}):
                one.{x} = {v}[i - 1]
        """,
    "siblings": """
        {class_A}
            def __init__({self}, {v}):
                {fill}
                {self}.{x} = {v}
        class B:
            def __init__(self):
                self.{y} = [A(self) for _ in range({many})]
        def leak():
            B()
        """,
    "dict subclass": """
        class B(dict):
            pass
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = B({y}={self})
        def leak():
            A()
        """,
    "list subclass": """
        class B(list):
            pass
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
                {self}.{x} = B([{self}])
        def leak():
            A()
        """,
    "dict in itself": """
        def leak():
            {v} = dict({x}=T(), {y}=1)
            {v}['{z}'] = {wrap}{v}{unwrap}
        """,
    "list in itself": """
        def leak():
            {v} = [T(), 1]
            {v}.append({wrap}{v}{unwrap})
        """,
    "namespace": """
        def leak():
            {v} = dict({x}=T())
            exec("def {f}(): pass", {v})
        """,
    "class in a function": """
        def leak():
            {v} = T()
            class A:
                {x} = 1
                def {f}(self):
                    return {v}
            A()
        """,
    # Functions.
    "recursion": """
        def leak():
            {v}, {y} = T(), [1]
            def {f}(n):
                return {v}, {y}, n and {f}(n - 1)
            {f}(2)
        """,
    "mutual recursion": """
        def leak():
            {v} = T()
            def {f}(n):
                return {v}, n and {g}(n - 1)
            def {g}(n):
                return n and {f}(n - 1)
            {f}(2)
        """,
    # Exceptions and frames.
    "exception in a local": """
        class Problem(Exception):
            pass
        def {f}():
            {local_noise}
            {v} = T()
            try:
                raise {error}(1)
            except {error} as error:
                {x} = {wrap}error{unwrap}
            return {local_use}
        def leak():
            {f}()
        """,
    "exception of a callee": """
        class Problem(Exception):
            pass
        def {g}({y}):
            {local_noise}
            raise {error}(1)
        def {f}():
            {v} = T()
            {x} = None
            try:
                {g}({v})
            except {error} as error:
                {x} = error
            return {x}
        def leak():
            {f}()
        """,
    "exception on an object": """
        class Problem(Exception):
            pass
        {class_A}
            def __init__({self}):
                {fill}
                {noise}
            def {f}(self):
                {local_noise}
                try:
                    raise {error}(1)
                except {error} as error:
                    self.{x} = {wrap}error{unwrap}
        def leak():
            A().{f}()
        """,
    "exception with a cause": """
        class Problem(Exception):
            pass
        def {f}():
            {local_noise}
            {v} = T()
            try:
                try:
                    raise ValueError(1)
                except ValueError as error:
                    raise {error}(2) from error
            except {error} as error:
                {x} = error
            return {local_use}
        def leak():
            {f}()
        """,
    "exception group": """
        def {f}():
            {v} = T()
            {x} = []
            for i in range({many}):
                try:
                    raise ValueError(i)
                except ValueError as error:
                    {x}.append(error)
            try:
                raise ExceptionGroup("all", {x})
            except ExceptionGroup as group:
                {y} = group
            {x} = None
        def leak():
            {f}()
        """,
    "exc_info": """
        def {f}():
            {v} = T()
            {x} = None
            try:
                raise ValueError(1)
            except ValueError:
                {x} = sys.exc_info()
            return {v}
        def leak():
            {f}()
        """,
    "exc_info in three locals": """
        def {f}():
            {local_noise}
            {v} = T()
            try:
                raise ValueError(1)
            except ValueError:
                {g}, {x}, {y} = sys.exc_info()
            return {local_use}
        def leak():
            {f}()
        """,
    "exc_info on an object": """
        {class_A}
            def __init__({self}):
                {fill}
            def {f}(self):
                try:
                    raise ValueError(1)
                except ValueError:
                    self.{x} = {wrap}sys.exc_info(){unwrap}
        def leak():
            A().{f}()
        """,
    "frame": """
        def {f}():
            {local_noise}
            {v} = T()
            {x} = {wrap}sys._getframe(){unwrap}
            return {local_use}
        def leak():
            {f}()
        """,
    "future": """
        class Problem(Exception):
            pass
        def {f}():
            {local_noise}
            {v} = T()
            {x} = concurrent.futures.Future()
            try:
                raise {error}(1)
            except {error} as error:
                {x}.set_exception(error)
            try:
                {x}.result()
            except {error}:
                pass
        def leak():
            {f}()
        """,
    "task": """
        class Problem(Exception):
            pass
        async def {g}():
            raise {error}(1)
        async def {f}():
            {local_noise}
            {v} = T()
            {x} = asyncio.ensure_future({g}())
            try:
                await {x}
            except {error}:
                pass
        def leak():
            loop = asyncio.new_event_loop()
            loop.run_until_complete({f}())
            loop.close()
        """,
}
