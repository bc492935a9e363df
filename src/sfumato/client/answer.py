"""The answer to a question, with free post-processing: plots, tidied counts, totals, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.client.answer_table import AnswerValues
from sfumato.dp.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.plot import Plot


@dataclass(frozen=True, repr=False)
class Answer(AnswerValues):
    """Released values with their error bars, and free post-processing of them.

    An interval has a low and a high end; an unknown end is infinite. Polars, pyarrow, DuckDB and
    others read an answer directly by Arrow's C stream: `polars.DataFrame(answer)`.
    """

    def plot(
        self,
        x: str | None = None,
        y: str | None = None,
        color: str | None = None,
        title: str | None = None,
    ) -> Plot:
        """Plot one column of the answer, with error bars, a summary and a table.

        Args:
            x: The key on the x axis, by its column name.
            y: The column of numbers to plot.
            color: A second key; each of its values has its own color.
            title: The title; by default it names the column and the keys.

        Returns:
            A plot. Notebooks display it, and `save(path)` writes it as .svg, .png, .html or .json.

        Raises:
            Refused: `unknown-column` for a name that the answer lacks.
        """
        from sfumato.client.plot import plotted

        return plotted(self, x=x, y=y, color=color, title=title)

    def tidy(self, margins: Answer | Sequence[Answer] = ()) -> Answer:
        """Make counts whole and non-negative, and adjust groups to released totals; free.

        It is post-processing, so it costs nothing. The notes of the answer say what was changed.

        Args:
            margins: One answer or several, with totals of the same numbers. Groups and totals are
                both noisy, so the groups are moved towards the totals by least squares.

        Returns:
            The adjusted answer.

        Raises:
            Refused: `not-in-language` if the numbers have no noise, or come from a program.
        """
        from sfumato.client.tidy import tidied

        self._check_asked()
        return tidied(self, [margins] if isinstance(margins, Answer) else margins)

    def total(self, *keep: str) -> Answer:
        """Sum the answer's groups over all keys that are not kept, with correct error bars; free.

        Args:
            *keep: The keys to keep. Without any, the sum is over all keys.

        Returns:
            The totals, as an answer.

        Raises:
            Refused: `not-in-language` if the numbers cannot be added, have no noise, or come from a
                program.
        """
        from sfumato.client.derived_totals import total_cells

        self._check_asked()
        return total_cells(self, keep)

    def with_sampling(self) -> Answer:
        """Widen the error bars of means by the sampling error; free.

        For each AVG column, the answer must also have its STDDEV and COUNT. Without this method,
        every error bar covers the noise alone.

        Returns:
            The answer with wider error bars for its means.

        Raises:
            Refused: `not-in-language` if the standard deviation or the count is missing.
        """
        from sfumato.client.sampling_error import with_sampling_error as with_sampling

        self._check_asked()
        return with_sampling(self)

    def _check_asked(self) -> None:
        if self.receipt.get("epsilon", 0) is None:
            raise Refused(
                "not-in-language",
                "The numbers of this answer have no noise, so they have no error that this "
                "method could use.",
                "Compute with the values of .rows directly.",
            )
        if "question" not in self.receipt:
            raise Refused(
                "not-in-language",
                "This answer comes from a program (pipeline), so sfumato does not know what its "
                "numbers count.",
                "Ask for counts, sums or means in SQL or with the query builder, and use that "
                "answer.",
            )
