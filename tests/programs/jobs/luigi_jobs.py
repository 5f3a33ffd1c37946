"""Tasks of Luigi; `luigi --module luigi_jobs Invoices --local-scheduler` runs them."""

import luigi
from work import NUMBERS, path_of, write_invoice

import locks


class Invoice(luigi.Task):
    number = luigi.IntParameter()

    def output(self):
        return luigi.LocalTarget(str(path_of(self.number)))

    @locks.locked(("invoices",))
    def run(self):
        if not self.complete():  # another process may have written it meanwhile
            write_invoice(self.number)


class Invoices(luigi.WrapperTask):
    def requires(self):
        return [Invoice(number) for number in NUMBERS]
