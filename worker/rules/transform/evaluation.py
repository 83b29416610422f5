"""The part of an evaluation that runs in the JVM as one call: each call over Py4J takes as long as some hundred rows.

Spark's own compiler (Janino, which Spark needs for its code generation) compiles it when it is needed first.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from shardmerge.worker.rules.transform.session import session

_NAME = "shardmerge.Evaluation"
_SOURCE = """
package shardmerge;

import java.io.FileOutputStream;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.api.python.PythonSQLUtils;
import org.apache.spark.sql.execution.arrow.ArrowBatchStreamWriter;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.arrow.ArrowConverters$ArrowBatchIterator;
import org.apache.spark.sql.execution.arrow.ArrowConverters$InternalRowIterator;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.mutable.ArrayBuffer;

public class Evaluation {
    private static final String ZONE = "UTC";
    private static final long ALL_ROWS = 0L;

    private SparkSession session;
    private List projections;
    private StructType given;
    private StructType answer;
    private boolean hasRead;

    public void prepare(SparkSession session, List projections, StructType given, StructType answer) {
        this.session = session;
        this.projections = projections;
        this.given = given;
        this.answer = answer;
    }

    /** Whether the last evaluation failed at its rows, not before. */
    public boolean hasRead() {
        return hasRead;
    }

    /** Reads an Arrow stream from the file of that name, and writes one with the results. */
    public void evaluate(String rows, String results) throws Exception {
        hasRead = false;
        org.apache.spark.sql.classic.SparkSession.setActiveSession(session);
        ArrowConverters$ converters = ArrowConverters$.MODULE$;
        Iterator reading = converters.fromBatchIterator(
            PythonSQLUtils.readArrowStreamFromFile(rows), given, ZONE, false, false, (TaskContext) null);
        Iterator found = reading;
        for (int at = 0; at < projections.size(); at++) {
            found = found.map((Function1) projections.get(at));
        }
        FileOutputStream stream = new FileOutputStream(results);
        try {
            ArrowBatchStreamWriter writer = new ArrowBatchStreamWriter(answer, stream, ZONE, false, false);
            ArrowConverters$ArrowBatchIterator writing = converters.toBatchIterator(
                found, answer, ALL_ROWS, ZONE, false, false, (TaskContext) null);
            boolean isComplete = false;
            try {
                hasRead = true;
                writer.writeBatches(writing);
                hasRead = false;
                isComplete = true;
            } finally {
                if (!isComplete) {
                    // It frees its memory itself only when it is read to its end.
                    ArrayBuffer resources = ((ArrowConverters$InternalRowIterator) reading).resources();
                    for (int at = resources.size() - 1; at >= 0; at--) {
                        ((AutoCloseable) resources.apply(at)).close();
                    }
                }
                writing.close();
            }
            writer.end();
        } finally {
            stream.close();
        }
    }
}
"""


_lock = threading.Lock()
_known: list[Any] = []


def _compiled() -> Any:
    """The Java class. There is only one in a JVM: Py4J takes all classes of one name for the same."""
    with _lock:
        if not _known:
            jvm: Any = session()._jvm
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
            compiler.cook(_SOURCE)
            _known.append(compiler.getClassLoader().loadClass(_NAME))
        return _known[0]


def evaluation(projections: Sequence[Any], given: Any, answer: Any) -> Any:
    """An object in the JVM that applies Spark's ``projections`` to rows of the schema ``given``; the schema of the
    result is ``answer``. One thread at a time: projections have a state."""
    made = _compiled().newInstance()
    made.prepare(session()._jsparkSession, list(projections), given, answer)
    return made
