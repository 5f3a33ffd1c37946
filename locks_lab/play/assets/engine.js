// Answers the page without a server: Python in the browser (Pyodide) runs the same code as `locks play`.

const SOURCES = "sources.zip";
const ANSWER = `
import json
from locks.errors import InvalidOption
from locks_lab.play.requests import respond
def answer(text):
    try:
        return json.dumps({"value": respond(json.loads(text))})
    except InvalidOption as error:
        return json.dumps({"error": str(error)})
answer
`;

async function begin() {
  const { loadPyodide } = await import("./pyodide/pyodide.mjs");
  const [python, sources] = await Promise.all([loadPyodide(), fetch(SOURCES).then((found) => found.arrayBuffer())]);
  python.unpackArchive(sources, "zip");
  return python.runPython(ANSWER);
}

const notice = document.getElementById("notice");
notice.hidden = false;
notice.textContent = "Python is being loaded: 13 MB, once.";
const ready = begin();

globalThis.askLocally = async (request) => {
  const answer = await ready;
  const { value, error } = JSON.parse(answer(JSON.stringify(request)));
  if (error !== undefined) throw new Error(error);
  return value;
};
