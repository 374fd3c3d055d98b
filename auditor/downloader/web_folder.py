"""Read a folder of a web server that lists its files in an index page of links."""

import math
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from urllib.parse import quote, unquote, urljoin, urlsplit

from auditor.checkpoint.snapshot import RepoFile
from auditor.downloader.answers import part_of_file, whole_body
from auditor.downloader.headers import Received
from auditor.downloader.http import RequestBudget, Session
from auditor.downloader.model_argument import StoreAddress
from auditor.tensors import Span

_LARGEST_PAGE = 4 * 1024 * 1024  # bytes of one index page: 40,000 files
_MOST_PAGES = 100  # folders of a model


class WebFolder:
    """A folder of a web server; its listing has no sizes and no versions."""

    def __init__(self, address: StoreAddress, say: Callable[[str], None]) -> None:
        self.host = address.url
        self._session = Session(None, None, say, budget=RequestBudget(math.inf))

    def names(self) -> Iterator[str]:
        """Yield the files that the index pages link to below the folder."""
        root = f"{self.host}/"
        folders = [root]
        for folder in folders:  # which grows
            take = whole_body(_LARGEST_PAGE, folder)
            page = self._session.get(folder, take, purpose="the index of a folder")
            for link in _links(page, folder):
                if not link.startswith(folder) or link in folders or link == folder:
                    continue  # the folder above, or another site
                if not link.endswith("/"):
                    yield unquote(link.removeprefix(root))
                elif len(folders) < _MOST_PAGES:
                    folders.append(link)

    def read(self, name: str, span: Span) -> Received:
        """Return the bytes of a span, and the file's size as the server tells it."""
        file = RepoFile(name=name, size=None)
        take = part_of_file(file, span, lambda _data, _size: span.stop)
        url = f"{self.host}/{quote(name)}"
        return self._session.get(url, take, purpose=f"bytes of {name}", span=span)


def _links(page: bytes, address: str) -> Iterator[str]:
    """Yield the addresses that a page links to, without queries and fragments."""
    parser = _Links()
    parser.feed(page.decode(errors="replace"))
    for link in dict.fromkeys(parser.links):
        try:
            split = urlsplit(urljoin(address, link))
        except ValueError:
            continue
        if not split.query:  # a query sorts the index
            yield split._replace(fragment="").geturl()


class _Links(HTMLParser):
    """The addresses in the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for key, value in attrs if tag == "a" and key == "href" and value]
