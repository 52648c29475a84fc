raise ImportError("kanalyze.analyze is the public function; its module is kanalyze.pipeline now (this file goes away)")
